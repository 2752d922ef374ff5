"""The log files, data files and vector files of a Delta table that are no longer needed, and their removal.

For `DeltaTable`, which says what its present version needs. Delta itself forgets by the day and never deletes a data
file; its VACUUM knows nothing of chunk files that wait for their adoption. Here all goes by one time: what was replaced
before it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.storage.store import NotFound
from tailrace.targets.lake.delta.commit import Action, uri_of
from tailrace.targets.lake.delta.state import DOMAIN
from tailrace.targets.lake.files import cleanup
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.files.vectors import DeltaVector
from tailrace.targets.lake.kept import CHUNK, HISTORY_SECONDS, KeptChunks, name_of, names_of

FILE_RETENTION = "delta.deletedFileRetentionDuration"
"""Delta's table property: who sets it longer than our hour gets it. It also says how long checkpoints carry the names
of removed files."""
CHECKPOINT_VERSIONS = 100
"""Delta writes a checkpoint at each hundredth version (`delta.checkpointInterval`)."""
_HOLES = "/_tailrace/holes-"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(
    rf"/data/(?:{_UUID}\.parquet|{CHUNK}[^/]*\.parquet)$|/deletion_vector_{_UUID}\.bin$|{_HOLES}[^/]*\.json$"
    r"|/_tailrace/next/[^/]*\.json$"
)
"""Names of files that a writer of Tailrace may have left. Names of other writers stay: an OPTIMIZE of theirs may take
hours to commit."""
_LOG = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet)")
_DURATION = re.compile(r"(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True)
class CurrentTable:
    """The table as it is now."""

    version: int
    newest: int
    """The last version whose checkpoint may become the first file of the log; -1: none."""
    metadata: Action
    needed: frozenset[str]
    """Names of the files that the version is made of."""


class Versions(Protocol):
    """Versions that stay readable, however old they are (`delta.kept_versions`)."""

    @property
    def numbers(self) -> set[int]: ...

    def names(self) -> set[str] | None:
        """The names of their files; None: of one they cannot be found out now."""

    def secure(self, version: int) -> bool:
        """Have the version need no other's part of the log; False: it does."""


class DeltaCleaner:
    """The clean-up of one table; remembers the files that versions of the last hour removed."""

    def __init__(self, access: FileAccess, location: str, cuts: Versions | None = None) -> None:
        self._access = access
        self._location = location
        self._cuts = cuts
        self.removed: dict[str, float] = {}
        """Files that former versions needed, and when they were removed from it."""
        self._withheld: dict[str, float] = {}
        """Files that would go if no cut needed them."""
        self._log_cleaned: int | None = None

    def opened(self, version: int, removed: Iterable[Action] = ()) -> None:
        """The table was read at this version; its log carries these `remove` actions."""
        self._given_up(removed_by(removed, self._location))
        if self._log_cleaned is None:
            self._log_cleaned = version

    def committed(self, removed: Iterable[Action], side_file: str | None, now: float) -> None:
        """A commit of Tailrace removed these files, and this list of holes."""
        self._given_up(removed_by(removed, self._location))
        if side_file is not None:
            self._given_up({f"{self._location}/{side_file}": now})

    def let_go(self) -> None:
        """Cuts keep fewer versions than before."""
        self.removed |= self._withheld
        self._withheld = {}

    def _given_up(self, removed: Mapping[str, float]) -> None:
        for path, when in removed.items():
            self.removed[path] = max(when, self.removed.get(path, when))

    def due(self, version: int, older_than: float) -> bool:
        """True if there may be something to delete; a table without commits costs nothing."""
        return self._checkpoint(version) or any(when < older_than for when in self.removed.values())

    def forget(self, present: CurrentTable, older_than: float, chunks: KeptChunks) -> bool:
        """Delete what was removed before that time, and the log before the last checkpoint that is older."""
        kept = retention(present.metadata)
        return kept is not None and self._forget(present, older_than - kept + HISTORY_SECONDS, chunks)

    def sweep(self, present: CurrentTable, older_than: float, chunks: KeptChunks, skew: float) -> int:
        kept = retention(present.metadata)
        if kept is None:
            return 0
        older = older_than - kept + HISTORY_SECONDS
        of_cuts = self._names()
        if of_cuts is None:
            return 0
        self._log_cleaned = -CHECKPOINT_VERSIONS  # whatever was done before
        self._forget(present, older, chunks)
        needed = present.needed | of_cuts | names_of(self.removed) | names_of(self._withheld)
        found = (entry for entry in self._access.aged(self._location) if _OURS.search(entry[0]))
        gone = cleanup.abandoned(found, needed, before=older - skew, chunks=chunks)
        if any(_HOLES in path for path in gone):
            # Commits name the same one while the holes stay, so its age says nothing: any readable version may name it.
            named = side_files(self._access, (path for path, _ in self._log()))
            gone = [path for path in gone if name_of(path) not in named]
        gone += cleanup.left_by_killed(self._access, self._location, older - skew)
        return len(gone) if cleanup.remove(self._access, gone, self._location) else 0

    def _forget(self, present: CurrentTable, older_than: float, chunks: KeptChunks) -> bool:
        due = {path for path, when in self.removed.items() if when < older_than and not chunks.keeps(path)}
        of_cuts = self._names() if due else set()
        if of_cuts is None:
            return False
        # A file is given up with each new vector of it, and is live all the same.
        gone = [path for path in due if name_of(path) not in present.needed | of_cuts]
        if cleanup.remove(self._access, gone, self._location):
            self._withheld |= {path: self.removed[path] for path in due if name_of(path) in of_cuts}
            self.removed = {path: when for path, when in self.removed.items() if path not in due}
        return self._clean_log(present, older_than) or bool(gone)

    def _clean_log(self, present: CurrentTable, older_than: float) -> bool:
        if not self._checkpoint(present.version):
            return False
        log = list(self._log())
        gone = outdated(log, older_than, present.newest)
        of_cuts = set() if self._cuts is None else self._cuts.numbers
        passed = sorted(of_cuts & {_version(path) for path in gone})
        known = {name_of(path) for path, _ in log}
        for version in passed:
            if f"{version:020d}.checkpoint.parquet" not in known and not (self._cuts and self._cuts.secure(version)):
                gone = outdated(log, older_than, min(present.newest, version))
                break
        gone = [path for path in gone if _version(path) not in of_cuts]
        if cleanup.remove(self._access, gone, self._location):
            self._log_cleaned = present.version
        return bool(gone)

    def _checkpoint(self, version: int) -> bool:
        """True if a checkpoint may have been written since the log was last examined: only then can log files be
        deleted."""
        return version // CHECKPOINT_VERSIONS > (self._log_cleaned or 0) // CHECKPOINT_VERSIONS

    def _names(self) -> set[str] | None:
        """The names of the files that cuts need; None: not known now."""
        return set() if self._cuts is None else self._cuts.names()

    def _log(self) -> Iterator[tuple[str, float]]:
        return self._access.aged(f"{self._location}/_delta_log")


def retention(metadata: Action) -> float | None:
    """Seconds that a replaced version stays readable; None: the table says so in words that only Delta understands."""
    text = metadata["configuration"].get(FILE_RETENTION)
    if text is None:
        return HISTORY_SECONDS
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else max(int(found[1]) * _SECONDS[found[2].lower()], HISTORY_SECONDS)


def files_of(action: Action, location: str) -> Iterator[str]:
    """The files that an `add` or a `remove` needs: its data file and the file of its vector."""
    yield uri_of(action["path"], location)
    vector: Mapping[str, Any] | None = action.get("deletionVector")
    if vector and vector["storageType"] != "i":
        yield uri_of(DeltaVector.from_json(vector).path(location), location)


def removed_by(actions: Iterable[Action], location: str) -> dict[str, float]:
    """Files that these `remove` actions give up, and when last: a data file has one for each vector that was replaced,
    a file of vectors one for each data file, in any order. A file may still be live under another vector."""
    found: dict[str, float] = {}
    for remove in actions:
        when = (remove.get("deletionTimestamp") or 0) / 1000
        for uri in files_of(remove, location):
            found[uri] = max(when, found.get(uri, when))
    return found


def outdated(log: Iterable[tuple[str, float]], older_than: float, newest: int) -> list[str]:
    """Log files that no version needs which was current at that time or later. `log`: path and time of each file;
    `newest`: the last version whose checkpoint may become the first of the log. None where Delta keeps part of its
    state elsewhere (sidecars, compacted or staged commits)."""
    found: list[tuple[int, str, str, float]] = []
    for path, changed in log:
        name = name_of(path)
        match = _LOG.fullmatch(name)
        if match is None:
            if name.startswith(("_", ".")):  # `_last_checkpoint`, and what an unfinished write leaves
                continue
            return []
        found.append((int(match[1]), match[2], path, changed))
    oldest = newest
    for version, changed in sorted((version, changed) for version, kind, _, changed in found if kind == "json"):
        if changed > older_than:
            # The version before this one was current then.
            oldest = min(oldest, version - 1)
            break
    checkpoints = (version for version, kind, _, _ in found if kind == "checkpoint.parquet")
    first = max((version for version in checkpoints if version <= oldest), default=0)
    return sorted(path for version, _, path, _ in found if version < first)


def _version(path: str) -> int:
    return int(name_of(path).partition(".")[0])


def side_files(access: FileAccess, log: Iterable[str]) -> set[str]:
    """Names of the lists of holes that the commits of the kept log name."""
    out = set()
    for path in log:
        if path.endswith(".json") and _LOG.fullmatch(name_of(path)):
            try:
                text = access.get(path)
            except NotFound:
                continue
            out |= {name_of(file) for line in text.splitlines() if DOMAIN.encode() in line for file in _named(line)}
    return out


def _named(line: bytes) -> Iterator[str]:
    domain = json.loads(line).get("domainMetadata", {})
    if domain.get("domain") == DOMAIN:
        path = json.loads(domain["configuration"]).get("holesFile")
        if path:
            yield path
