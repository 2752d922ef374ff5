"""A Delta table's log as what it is, files: read by listing them, and continued by creating the next one.

A version is one JSON file that exactly one writer can create, so a commit is one exclusive write, and whoever meets the
name taken has lost to another writer (Delta's protocol, "Delta Log Entries"; docs/decisions/0071). No JVM, no memory of
former versions. For the tables of which `protocol.is_direct` says so; others are Delta's (`log.DeltaLog`).

Dying before the write leaves nothing, after it a whole version.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tailrace.errors import OutcomeUnknown, Retry, StorageFull
from tailrace.storage.store import AlreadyExists, NotFound
from tailrace.targets.lake.delta.log import POINTER, Action
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.files.access import FileAccess

_NAME = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet)")


@dataclass(frozen=True)
class FoundVersion:
    """The newest version by the log's files."""

    version: int
    digest: bytes | None
    """The digest of the version's file; None: it has gone, and a checkpoint is left of it."""
    state: State | None
    """None: not all of it can be read here."""


class LogGap(Retry):
    """Versions of the log were cleaned away before anybody looked at them."""


class DirectLog:
    """The log of the table at `location`."""

    def __init__(self, access: FileAccess, location: str) -> None:
        self._access = access
        self._location = location
        self._folder = f"{location}/_delta_log"

    def path(self, version: int) -> str:
        return f"{self._folder}/{version:020d}.json"

    def read(self, last: int | None = None) -> FoundVersion | None:
        """The newest version, or the one of that number. None: there is no table."""
        found = self._files(last)
        if found is None:
            return None
        version, files = found
        digest = self._digest(version)  # before the rest: of a table that is re-created meanwhile, it fits nothing
        return FoundVersion(version, digest, None if files is None else replay(self._access, self._location, files))

    def has(self, version: int, digest: bytes | None) -> bool:
        """True if the version is there, and is the one of that digest. (None: a checkpoint is all that was left of it,
        or Delta knows it: then it is there as long as it, or another after it, can be listed.)"""
        if digest is not None:
            return self._digest(version) == digest
        found = self._files()
        return found is not None and found[0] >= version

    def is_newest(self, version: int, digest: bytes | None) -> bool:
        """True if the table still is at this version, and it is the same one."""
        return digest is not None and self.has(version, digest) and not self._access.exists(self.path(version + 1))

    def _files(self, last: int | None = None) -> tuple[int, list[str] | None] | None:
        names = [path.removeprefix(f"{self._folder}/") for path, _ in self._access.aged(self._folder)]
        return version_files(names, last)

    def _digest(self, version: int) -> bytes | None:
        with suppress(NotFound):
            return _digest(self._access.get(self.path(version)))
        return None

    def changes(self, first: int, last: int) -> Iterator[tuple[int, list[Action]]]:
        """The actions of these versions. `LogGap`: one has been cleaned away."""
        for version in range(first, last + 1):
            try:
                content = self._access.get(self.path(version))
            except NotFound as error:
                raise LogGap(f"the log lacks version {version}") from error
            yield version, [json.loads(line) for line in content.splitlines() if line]

    def commit(self, version: int, actions: Sequence[Action]) -> bytes:
        """Create the version; returns its digest. `Retry`: it is another's, or nothing was written; `OutcomeUnknown`:
        what became of it cannot be found out. No two commits have the same bytes: each has a nonce."""
        content = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
        path = self.path(version)
        self._forget_checksum(path)
        try:
            self._access.create(path, content)
        except AlreadyExists as error:
            # A request that was repeated after a lost answer meets its own file.
            if self._access.get(path) != content:
                raise Retry(f"somebody else changed the table: {path} exists") from error
        except OutcomeUnknown as unknown:
            self._find_out(path, content, unknown)
        return _digest(content)

    def _find_out(self, path: str, content: bytes, unknown: OutcomeUnknown) -> None:
        """If the write should arrive later after all, it is the version that our next attempt meets."""
        try:
            found = self._access.get(path)
        except NotFound:
            if isinstance(unknown, StorageFull):
                raise unknown from None
            raise Retry(f"the commit of {path} did not happen: {unknown.message}") from unknown
        except Retry as error:
            raise unknown from error
        if found != content:
            raise Retry(f"somebody else changed the table: {path} exists") from unknown

    def point_to(self, checkpoint: Action) -> None:
        """Replace the pointer to the last checkpoint, with which readers begin."""
        path = f"{self._folder}/{POINTER}"
        self._forget_checksum(path)
        self._access.put(path, json.dumps(checkpoint).encode())

    def forget_pointer(self) -> None:
        """Remove what a table that stood here before has left: readers would look for its checkpoint."""
        path = f"{self._folder}/{POINTER}"
        self._forget_checksum(path)
        self._access.delete(path)

    def _forget_checksum(self, path: str) -> None:
        """Hadoop's, of a former file of this name in a local folder: it would speak against the new one."""
        if path.startswith("file://"):
            folder, _, name = path.rpartition("/")
            self._access.delete(f"{folder}/.{name}.crc")


def version_files(names: Sequence[str], last: int | None = None) -> tuple[int, list[str] | None] | None:
    """The newest version (not above `last`) and the files that make it up, its checkpoint's first; None for the files:
    some are missing, or of a kind that only Delta reads. `names`: of the files of `_delta_log`."""
    commits: dict[int, str] = {}
    checkpoints: dict[int, dict[int, list[str]]] = {}
    for name in sorted(names):
        found = _NAME.fullmatch(name)
        if found is None or (last is not None and int(found[1]) > last):
            continue
        version = int(found[1])
        if name.endswith(".json"):
            commits[version] = name
        else:
            checkpoints.setdefault(version, {}).setdefault(int(found[3] or 1), []).append(name)
    whole = {
        version: parts
        for version, kinds in checkpoints.items()
        for count, parts in kinds.items()
        if len(parts) == count
    }
    if not commits and not whole:
        return None
    first = max(whole, default=-1)
    newest = max(first, *commits) if commits else first
    wanted = range(first + 1, newest + 1)
    if any(version not in commits for version in wanted):
        return newest, None
    return newest, [*whole.get(first, ()), *(commits[version] for version in wanted)]


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
