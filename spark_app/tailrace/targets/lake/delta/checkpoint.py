"""A checkpoint of a Delta table, written without Spark: the replayed state of one version as one Parquet file, in the
classic form that every reader knows.

`DeltaTable` writes it after its commits (docs/decisions/0062), but for tables that are left to Delta. A version without
a checkpoint is whole: dying here, or a failure, costs readers some more files of the log, until the next one.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.storage.store import AlreadyExists
from tailrace.targets.lake.delta.cleanup import retention
from tailrace.targets.lake.delta.log import Action
from tailrace.targets.lake.delta.replay import State
from tailrace.targets.lake.files.access import FileAccess

_INTERVAL, _DEFAULT_INTERVAL = "delta.checkpointInterval", 10
_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct({
    "storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(), "sizeInBytes": pa.int32(),
    "cardinality": pa.int64(),
})  # fmt: skip
_FILE = {"path": pa.string(), "partitionValues": _STRINGS, "size": pa.int64(), "dataChange": pa.bool_()}
_ROWS = {"deletionVector": _VECTOR, "baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}
SCHEMA = pa.schema({
    "protocol": pa.struct({
        "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }),
    "metaData": pa.struct({
        "id": pa.string(), "name": pa.string(), "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _STRINGS}), "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()), "configuration": _STRINGS, "createdTime": pa.int64(),
    }),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "remove": pa.struct({
        **_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_(), **_ROWS,
    }),
    "add": pa.struct({
        **_FILE, "modificationTime": pa.int64(), "stats": pa.string(), "tags": _STRINGS, **_ROWS,
        "clusteringProvider": pa.string(),
    }),
})  # fmt: skip
"""One column for each kind of action, as in Delta's protocol ("Checkpoints")."""


def due(version: int, metadata: Action) -> bool:
    """True if the table needs a checkpoint at this version."""
    every = str(metadata["configuration"].get(_INTERVAL, ""))
    interval = int(every) if every.isdecimal() else 0
    return version > 0 and version % (interval or _DEFAULT_INTERVAL) == 0


def write(access: FileAccess, location: str, version: int, state: State, now: float | None = None) -> Action | None:
    """Create the checkpoint's file; returns what the pointer to the last checkpoint is to say, None: another has
    written this version's. `now`: in seconds since the Unix epoch."""
    rows = list(actions(state, time.time() if now is None else now))
    columns = [
        pa.array([_stored(action, kind.type) if name == kind.name else None for name, action in rows], kind.type)
        for kind in SCHEMA
    ]
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=SCHEMA), out)
    data = out.getvalue().to_pybytes()
    try:
        _create(access, location, f"{version:020d}.checkpoint.parquet", data)
    except AlreadyExists:
        return None
    return {"version": version, "size": len(rows), "sizeInBytes": len(data), "numOfAddFiles": len(state.files)}


def _create(access: FileAccess, location: str, name: str, data: bytes) -> None:
    if location.startswith("file://"):
        # Hadoop's checksum of a former file of this name would speak against this one.
        access.delete(f"{location}/_delta_log/.{name}.crc")
    access.create(f"{location}/_delta_log/{name}", data)


def actions(state: State, now: float) -> Iterator[tuple[str, Action]]:
    """All that is left of the log up to the version. Removed files stay named for as long as the table keeps them."""
    yield "protocol", state.protocol
    yield "metaData", state.metadata
    for transaction in state.transactions.values():
        yield "txn", transaction
    for domain, configuration in state.domains.items():
        yield "domainMetadata", {"domain": domain, "configuration": configuration, "removed": False}
    kept = retention(state.metadata)
    for remove in state.removed:
        if kept is None or remove.get("deletionTimestamp", 0) > (now - kept) * 1000:
            yield "remove", {**remove, "dataChange": False}
    for add in state.files:
        yield "add", {**add, "dataChange": False}


def _stored(value: Any, kind: pa.DataType) -> Any:
    """The value in the form that Arrow takes: a map as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        entries: Mapping[str, str | None] = value
        return list(entries.items())
    if pa.types.is_struct(kind):
        return {field.name: _stored(value.get(field.name), field.type) for field in kind}
    return value
