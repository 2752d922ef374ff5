"""Which files of a table's folder nobody needs any more, and their removal. For Delta and Iceberg alike.

A file goes by reachability, never by its path alone: the format says what its kept versions reach (a vector file is
reached through any of its vectors), the change log which chunk files it still needs. Apply asks for it between batches.
Dying anywhere in between leaves files that nobody names; the next sweep, which lists the folder, finds them.
"""

import logging
from collections.abc import Iterable, Set

from tailrace.errors import TailraceError
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.kept import KeptChunks, name_of

log = logging.getLogger(__name__)


def abandoned(found: Iterable[tuple[str, float]], needed: Set[str], *, before: float, chunks: KeptChunks) -> list[str]:
    """Of the files found (with the time of their last change), those older than `before` whose name nobody needs."""
    return [
        path for path, changed in found if changed < before and name_of(path) not in needed and not chunks.keeps(path)
    ]


def remove(access: FileAccess, paths: Iterable[str], location: str) -> bool:
    """Delete the files as far as they lie below `location`; False: some may have stayed. The table is right without it,
    so a storage that refuses is no reason to stop it."""
    below = sorted(path for path in paths if path.startswith(f"{location}/"))
    if location.startswith("file:"):
        # Hadoop puts a checksum file beside each file that it writes into a local folder.
        below += [f"{folder}/.{name}.crc" for folder, _, name in (path.rpartition("/") for path in below)]
    try:
        access.delete_many(below)
    except TailraceError as error:
        log.warning("unneeded files below %s could not be deleted: %s", location, error)
        return False
    return True
