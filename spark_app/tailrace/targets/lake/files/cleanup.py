"""The files of a table's folder that are no longer needed, and their removal. For Delta and Iceberg alike.

A file goes by reachability, never by its path alone: the format says what its kept versions reach (a vector file is
reached through any of its vectors), the change log which chunk files it still needs. Apply asks for it between batches.
Dying anywhere in between leaves files that no version names; the next sweep, which lists the folder, finds them.
"""

import logging
import re
from collections.abc import Iterable, Set

from tailrace.errors import TailraceError
from tailrace.storage.local import TEMPORARY
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.kept import KeptChunks, name_of

log = logging.getLogger(__name__)

CHECKSUM = re.compile(r"\.(.+)\.crc")
"""Hadoop's, beside each file that it writes into a local folder."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]+|\..+\.{_UUID}(?:\.TID\d+)?\.tmp|{_UUID}-version-hint\.temp")
"""How a file is called until it is whole: by our storage, by Delta and the log store, by Iceberg's folder catalog."""


def abandoned(found: Iterable[tuple[str, float]], needed: Set[str], *, before: float, chunks: KeptChunks) -> list[str]:
    """The files found (with the time of their last change) that are older than `before` and whose name is not
    needed."""
    return [
        path for path, changed in found if changed < before and name_of(path) not in needed and not chunks.keeps(path)
    ]


def left_by_killed(access: FileAccess, location: str, before: float) -> list[str]:
    """The files of killed writers in a local folder, older than `before`: files that never got their name, and
    checksums of files that are gone. An object store has neither."""
    found = list(access.aged(location)) if location.startswith("file:") else []
    there = {path for path, _ in found}
    return [path for path, changed in found if changed < before and (_unfinished(path) or _lonely(path, there))]


def _unfinished(path: str) -> bool:
    return _TEMPORARY.fullmatch(path.rpartition("/")[2]) is not None


def _lonely(path: str, there: Set[str]) -> bool:
    folder, _, name = path.rpartition("/")
    match = CHECKSUM.fullmatch(name)
    return match is not None and f"{folder}/{match[1]}" not in there


def remove(access: FileAccess, paths: Iterable[str], location: str) -> bool:
    """Delete the files as far as they are below `location`; False: some may have stayed. The table is right without it,
    so a storage that refuses is no reason to stop it."""
    below = sorted(path for path in paths if path.startswith(f"{location}/"))
    if location.startswith("file:"):
        # First: a checksum that outlived its file would speak against a later one of its name.
        below = [f"{folder}/.{name}.crc" for folder, _, name in (path.rpartition("/") for path in below)] + below
    try:
        access.delete_many(below)
    except TailraceError as error:
        log.warning("unneeded files below %s could not be deleted: %s", location, error)
        return False
    return True
