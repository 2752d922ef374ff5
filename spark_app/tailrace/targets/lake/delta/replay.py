"""The state of one version of a Delta table from its log files, without Spark: the last checkpoint, then a JSON file
per commit, the newest action of a kind wins (Delta's protocol, "Action Reconciliation").

Delta's own way is two queries for each table that is opened, 2.4 CPU seconds, at each start of a driver that may have a
thousand tables (docs/decisions/0062). Which files make up the version, `direct_log` says; what only Delta can read is
left to it: `replay` then returns None.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.storage.store import NotFound
from tailrace.targets.lake.delta.commit import uri_of
from tailrace.targets.lake.delta.log import Action
from tailrace.targets.lake.files.access import FileAccess

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_ADD = (
    "path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector", "baseRowId",
    "defaultRowCommitVersion", "clusteringProvider",
)  # fmt: skip
"""Fields of the protocol; a checkpoint may hold parsed forms of some of them besides."""
_REMOVE = (
    "path", "deletionTimestamp", "dataChange", "extendedFileMetadata", "partitionValues", "size", "deletionVector",
    "baseRowId", "defaultRowCommitVersion",
)  # fmt: skip


@dataclass
class State:
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    transactions: dict[str, Action] = field(default_factory=dict)
    """The last `txn` action by application."""
    domains: dict[str, str] = field(default_factory=dict)
    """Domain -> configuration."""
    files: Sequence[Action] = ()
    """The `add` actions of the live files."""
    removed: Sequence[Action] = ()
    """The `remove` actions of files that are not live again, as far back as the checkpoint carries them."""


def replay(access: FileAccess, location: str, names: Sequence[str]) -> State | None:
    """`names`: the files of `_delta_log`, checkpoint first. None: there are sidecars, staged or compacted commits among
    them, or one is gone or not readable, which Delta then names."""
    if not all(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names):
        return None
    state, live, removed = State(), dict[tuple[Any, ...], Action](), dict[tuple[Any, ...], Action]()
    try:
        for name in names:
            uri = f"{location}/_delta_log/{name}"
            for kind, action in _commit(access, uri) if _COMMIT.fullmatch(name) else _checkpoint(access, uri):
                match kind:
                    case "add":
                        file = _identity(action, location)
                        removed.pop(file, None)
                        live[file] = action
                    case "remove":
                        file = _identity(action, location)
                        live.pop(file, None)
                        removed[file] = action
                    case "protocol":
                        state.protocol = action
                    case "txn":
                        state.transactions[action["appId"]] = action
                    case "metaData":
                        state.metadata = {"configuration": {}} | action
                    case "domainMetadata" if action.get("removed"):
                        state.domains.pop(action["domain"], None)
                    case "domainMetadata":
                        state.domains[action["domain"]] = action["configuration"]
                    case "sidecar":
                        return None
                    case _:
                        pass  # says nothing about the table's files or its state
    except (NotFound, ValueError):
        return None
    state.files, state.removed = list(live.values()), list(removed.values())
    return state if state.metadata else None


def _identity(action: Action, location: str) -> tuple[Any, ...]:
    """A file with another deletion vector is another file."""
    vector: Mapping[str, Any] = action.get("deletionVector") or {}
    place = (vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset"))
    return uri_of(action["path"], location), *place


def _commit(access: FileAccess, uri: str) -> Iterator[tuple[str, Action]]:
    for line in access.get(uri).splitlines():
        if line:
            yield from json.loads(line).items()


def _checkpoint(access: FileAccess, uri: str) -> Iterator[tuple[str, Action]]:
    # Without the cache of footers: a re-created table uses the names of its checkpoints again.
    with access.open_input(uri) as source, pq.ParquetFile(source) as file:
        there = file.schema_arrow.names
        kinds = [name for name in ("sidecar", "protocol", "metaData", "txn", "domainMetadata") if name in there]
        gone = ["remove"] if "remove" in there else []
        columns = [f"add.{name}" for name in _ADD] + [f"{kind}.{name}" for kind in gone for name in _REMOVE]
        table = file.read([*kinds, *columns])
    for kind in (*kinds, *gone, "add"):
        column = table.column(kind).drop_null()
        for value in column.to_pylist():
            yield kind, _plain(value, column.type)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """The value as the JSON of a commit has it: maps as objects, nothing that is null."""
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        return {f.name: _plain(value[f.name], f.type) for f in kind if value[f.name] is not None}
    return value
