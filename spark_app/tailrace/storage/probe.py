"""Tries a place on a storage: a file is written, read and removed. Nothing is left behind, no folder either; what a
killed process left, the next one that tries the place removes."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.contract.resources import StorageLocation
from tailrace.errors import Where
from tailrace.storage.access import StorageRefused
from tailrace.storage.local import ABANDONED
from tailrace.storage.store import NotFound, Storage

PROBES = "_tailrace_doctor/"
"""Folder of the files that are written to see whether it can be done."""
ROOM = 1 << 20
"""Bytes of such a file on a local file system, where a disk or a quota that is full takes a small one now and then."""


def probe(config: StorageLocation, *, exclusive: bool, part: Where = "storage") -> bool:
    """Returns True if the file came back as it was written. `StorageRefused`: it cannot be written. `exclusive`:
    creation must be exclusive, too."""
    name = f"{PROBES}{uuid.uuid4().hex}"
    storage = Storage.open(config, os.environ, part=part)
    content = os.urandom(ROOM) if storage.local else b"tailrace"  # zeros may take no room
    sweep(storage)
    with _tidy(storage):
        try:
            storage.create(name, content)
        except NotFound as error:
            raise StorageRefused(f"{storage.root}: no folder can be made there", "Correct the location.") from error
        same = storage.get(name) == content
        storage.delete(name)
        if exclusive:
            storage.require_exclusive(name)
    return same


def require_exclusive(storage: Storage) -> None:
    """`StorageRefused` unless the store keeps its word that what exists is not created again."""
    sweep(storage)
    with _tidy(storage):
        storage.require_exclusive(f"{PROBES}{uuid.uuid4().hex}")


def sweep(storage: Storage) -> None:
    """Remove what killed processes left. Not what is young: another may be trying the same place now."""
    before = time.time() - ABANDONED
    if left := [path for path, changed in storage.aged(PROBES) if changed < before]:
        storage.delete_many(left)
        storage.prune(PROBES)


@contextmanager
def _tidy(storage: Storage) -> Iterator[None]:
    """The probes' folder is removed again, whichever process made it, and the folders above it that had to be made."""
    folder = Path(storage.access.prefix) / PROBES
    with storage.errors(PROBES, writing=True):
        made = [path for path in folder.parents if not path.exists()] if storage.local else []
    try:
        yield
    finally:
        for path in (folder, *made) if storage.local else ():
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()
