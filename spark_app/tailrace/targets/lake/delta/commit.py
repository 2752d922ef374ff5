"""One `TableCommit` as Delta log actions. Pure: `delta.DeltaTable` reads footers and sizes before, vectors come after.

A marked file is removed and added again with its new vector; a file whose rows are all dead is only removed.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.targets.lake.delta.stats import dumps, file_stats, loads, parsed_bounds
from tailrace.targets.lake.files import vectors
from tailrace.targets.lake.model import DataFile, NewFile, TableCommit

Action = dict[str, Any]
_ADD = ("path", "size", "modificationTime", "stats", "deletionVector", "tags", "defaultRowCommitVersion", "baseRowId")


@dataclass(frozen=True)
class LiveFile:
    """A live file with the `add` action that brought it; its statistics have at least the number of rows."""

    add: Action
    dead: BitMap64
    parsed: Action | None = None
    """The statistics, where they are known without reading their text."""

    @cached_property
    def stats(self) -> Action:
        return loads(self.add["stats"]) if self.parsed is None else self.parsed

    @property
    def rows(self) -> int:
        return int(self.stats["numRecords"])

    def is_like(self, other: "LiveFile") -> bool:
        """True if the other's bounds are these very ones."""
        return all(self.stats.get(name) is other.stats.get(name) for name in ("minValues", "maxValues"))

    @property
    def _vector_bytes(self) -> int:
        return int((self.add.get("deletionVector") or {}).get("sizeInBytes", 0))

    def marked(self, known: DataFile) -> DataFile:
        """Describes the file, of which other rows were dead before."""
        return replace(known, dead=self.dead, vector_bytes=self._vector_bytes)

    def data_file(self, location: str, fields: Mapping[str, pa.Field]) -> DataFile:
        lower, upper = parsed_bounds(self.stats, fields)
        uri = uri_of(self.add["path"], location)
        day = next(iter((self.add.get("partitionValues") or {}).values()), None)
        return DataFile(uri, self.rows, self.add["size"], self.dead, lower, upper, day, self._vector_bytes)


@dataclass
class Plan:
    """Actions of one commit, and the live files that result. `files` holds vector files to write first."""

    actions: list[Action]
    live: dict[str, LiveFile]
    files: list[tuple[str, bytes]] = field(default_factory=list)


def uri_of(path: str, location: str) -> str:
    """A log path (URL-encoded; relative or absolute) as an absolute URI."""
    if path.startswith("file:/") and not path.startswith("file://"):
        path = "file://" + path.removeprefix("file:")
    return unquote(path) if "://" in path else f"{location}/{unquote(path)}"


def path_of(uri: str, location: str) -> str:
    return quote(uri.removeprefix(location + "/"), safe="/:=-_.~")


def plan(
    change: TableCommit, live: Mapping[str, LiveFile], new: Sequence[Action], *, file_id: uuid.UUID, now_ms: int
) -> Plan:
    """`new`: the `add` actions of `change.add`, in its order and without vectors."""
    out = Plan([], dict(live))
    gone = list(live) if change.clear else list(change.remove)
    for uri in gone:
        out.actions.append(_remove(out.live.pop(uri).add, change.data_change, now_ms))
    adds: dict[str, LiveFile] = {}
    for uri, dead in change.marks.items():
        old = out.live[uri]
        if len(dead) == len(old.dead):
            continue
        out.actions.append(_remove(old.add, change.data_change, now_ms))
        del out.live[uri]
        if len(dead) < old.rows:
            adds[uri] = LiveFile(dict(old.add), dead, old.stats)
    for file, action in zip(change.add, new, strict=True):
        if len(file.dead) < file.rows:
            adds[file.path] = LiveFile(dict(action), file.dead)
    for uri, left in _with_vectors(out, adds, file_id).items():
        added = _plain(left.add) | {"dataChange": change.data_change}
        out.actions.append({"add": added})
        out.live[uri] = replace(left, add=added)
    return out


def _with_vectors(out: Plan, adds: Mapping[str, LiveFile], file_id: uuid.UUID) -> dict[str, LiveFile]:
    """Give each added file with dead rows its descriptor: inline while small, the others in one file."""
    found: dict[str, LiveFile] = {}
    large: dict[str, BitMap64] = {}
    for uri, file in adds.items():
        action, parsed = file.add, file.stats
        action.pop("deletionVector", None)
        if file.dead:
            if parsed.get("tightBounds") is not False:
                parsed = parsed | {"tightBounds": False}
                action["stats"] = dumps(parsed)
            inline = vectors.inline_delta(file.dead)
            if inline is None:
                large[uri] = file.dead
            else:
                action["deletionVector"] = inline.to_json()
        found[uri] = LiveFile(action, file.dead, parsed)
    if large:
        name, data, where = vectors.delta_file(large, file_id)
        out.files.append((name, data))
        for uri, vector in where.items():
            found[uri].add["deletionVector"] = vector.to_json()
    return found


def _plain(add: Action) -> Action:
    """The fields that an `add` needs; what a snapshot's listing carries besides (nulls, parsed forms) stays out."""
    kept = {name: add[name] for name in _ADD if add.get(name) is not None}
    return kept | {"partitionValues": add.get("partitionValues") or {}}


def removing(adds: Sequence[Action], now_ms: int) -> list[Action]:
    return [_remove(add, True, now_ms) for add in adds]


def adding(adds: Sequence[Action]) -> list[Action]:
    """Files that a former version had, as they were in it."""
    return [{"add": _plain(add) | {"dataChange": True}} for add in adds]


def _remove(add: Action, data_change: bool, now_ms: int) -> Action:
    out = {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues") or {},
        "size": add["size"],
    }
    if add.get("deletionVector"):
        # The descriptor is part of the removed file's identity.
        out["deletionVector"] = add["deletionVector"]
    return {"remove": out}


def new_add(
    file: NewFile,
    footer: pq.FileMetaData,
    columns: Sequence[pa.Field],
    location: str,
    now_ms: int,
    *,
    partition: str | None = None,
) -> Action:
    """The `add` action of a file that is not in the table yet. `partition`: the physical name of the column by whose
    days the table is partitioned."""
    return {
        "path": path_of(file.path, location),
        "partitionValues": {} if partition is None else {partition: file.day},
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": file_stats(footer, columns, tight=True),
    }
