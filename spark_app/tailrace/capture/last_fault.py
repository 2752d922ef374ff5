"""The error that ended a capture, in the run directory: `capture.process` leaves it, the driver reads it.

A `Fault` in JSON. The file has its room from the start on, as blanks, and is written in place: a full disk is often
what ended capture.
"""

import logging
from pathlib import Path

from tailrace.contract.status import Fault

log = logging.getLogger(__name__)
ROOM = 4096
"""Bytes. An error's texts are a few lines; a longer one is written as far as the disk allows it."""


def of(run_dir: Path) -> Path:
    return run_dir / "capture-fault.json"


def reserve(path: Path) -> None:
    """Empties the file: the error of an earlier capture is removed. If the disk is full now, it may have room later."""
    try:
        write_in_place(path, b"")
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)


def leave(path: Path, fault: Fault) -> None:
    """Best effort: the process ends with the error's exit code anyway."""
    try:
        write_in_place(path, fault.model_dump_json().encode())
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)


def read(path: Path) -> Fault | None:
    """None: the last capture left none, or works."""
    try:
        return Fault.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_in_place(path: Path, text: bytes) -> None:
    """Over what is there, and no shorter than `ROOM`: neither the file nor its blocks are given back in between."""
    path.touch()
    with path.open("r+b", buffering=0) as file:
        file.write(text.ljust(ROOM))
        file.truncate()
