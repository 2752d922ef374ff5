"""Local folders as storage: atomic, exclusive and durable writes with plain POSIX calls. Used by `tailrace.storage`.

obstore's local store does not sync; a record that a reader has seen must survive a power cut, so every file is written
aside and synced before it gets its name, and its folder after.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

TEMPORARY = ".tailrace-tmp-"
"""Files whose name begins so are unfinished: listings of objects pass over them, sweeps remove those that stay."""
ABANDONED = 3600.0
"""Seconds after which an unfinished file's writer is dead."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
ATTEMPTS = 20
"""To make a file in a folder that others remove when it is empty."""


def sync_folder(folder: Path | str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Like `mkdir -p`, each new folder's name durable in its parent. FileNotFoundError: another process removed a
    folder, which was empty, meanwhile. Never the FileExistsError of `mkdir`, which would read like an object that
    exists."""
    if folder.is_dir():
        return
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError as error:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} was made by another process, which removed it again") from error
    sync_folder(folder.parent)


def open_aside(path: Path) -> tuple[IO[bytes], Path]:
    aside = path.parent / f"{TEMPORARY}{token_hex(8)}"
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):  # another process has just removed the folder, which was empty
            make_folder(path.parent)
            return aside.open("xb"), aside
    make_folder(path.parent)
    return aside.open("xb"), aside


def write(path: str, data: bytes, *, exclusive: bool) -> None:
    """`exclusive`: FileExistsError if the name is taken; either way no reader ever sees a part of the content. (Each
    small commit writes two files: file objects and `Path` would double what the calls around the disk's work cost.)"""
    folder = path.rpartition("/")[0]
    aside = f"{folder}/{TEMPORARY}{token_hex(8)}"
    try:
        handle = os.open(aside, _NEW, 0o666)
    except (FileNotFoundError, NotADirectoryError):  # the folder is missing, or something else
        opened, made = open_aside(Path(path))
        with opened:
            handle = os.dup(opened.fileno())
        aside = str(made)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        publish(aside, path, exclusive=exclusive)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)  # noqa: PTH108  # as above


def publish(aside: str, path: str, *, exclusive: bool) -> None:
    """Give a synced file its name. A hard link, unlike a rename, fails if the name is taken."""
    if exclusive:
        os.link(aside, path)
    else:
        os.replace(aside, path)  # noqa: PTH105  # as in `write`
    sync_folder(path.rpartition("/")[0])


def walk(root: Path, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
    """(path relative to `root`, size) of every finished file whose relative path begins with `prefix` and comes after
    `after`, sorted."""
    start = root / prefix.rpartition("/")[0]
    for folder, folders, names in os.walk(start):
        folders.sort()
        base = Path(folder).relative_to(root).as_posix()
        for name in sorted(names):
            path = name if base == "." else f"{base}/{name}"
            if not name.startswith(TEMPORARY) and path.startswith(prefix) and path > after:
                try:
                    yield path, (root / path).stat().st_size
                except FileNotFoundError:
                    continue


def _below(folder: Path) -> Iterator[Path]:
    """Every file; folders that others remove meanwhile are passed over."""
    for base, _, names in os.walk(folder):
        yield from (Path(base, name) for name in names)


def aged(folder: Path) -> Iterator[tuple[str, float]]:
    """(path relative to the folder, time of its last change) of every file below it, unfinished ones too."""
    for path in _below(folder):
        try:
            yield path.relative_to(folder).as_posix(), path.stat().st_mtime
        except FileNotFoundError:
            continue


def unfinished(root: Path, prefix: str, younger: bool = False) -> list[str]:
    """Paths, relative to `root`, of unfinished files in the folder `prefix` and below that are no longer written;
    `younger`: also of those that another process may still write."""
    found = []
    for path in sorted(path for path in _below(root / prefix) if path.name.startswith(TEMPORARY)):
        try:
            if younger or time.time() - path.stat().st_mtime > ABANDONED:
                found.append(path.relative_to(root).as_posix())
        except FileNotFoundError:
            continue
    return found


def prune(root: Path, prefix: str) -> None:
    """Remove the empty folders of `prefix` and, where that empties them, those above it; the root stays."""
    start = root / prefix
    for folder, _, _ in os.walk(start, topdown=False):
        with suppress(OSError):  # not empty, or somebody else's
            Path(folder).rmdir()
    for above in start.parents:
        if above == root or not above.is_relative_to(root):
            return
        with suppress(OSError):
            above.rmdir()
