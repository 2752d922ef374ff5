"""The owner of a table: the change log, table and generation in its newest state. Read without Spark, before a
deletion.

Apply has the full readers of the state; these need no JVM, and also return the file that holds it: deleted last, it
proves to the next `drop` whose the rest is.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import TableStop
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.api import TableOwner
from tailrace.targets.lake.delta import foreign
from tailrace.targets.lake.delta.state import DOMAIN
from tailrace.targets.lake.iceberg.state import STATE, Broken, snapshot_of, walk

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
_METADATA = re.compile(r"(?:v(\d+)|(\d{5,})-[-\w]+)\.metadata\.json")
"""File names of metadata as a folder catalog and all others write them."""


@dataclass(frozen=True)
class LogMark:
    owner: TableOwner
    path: str
    """The file that says it."""


def delta(lake: Storage, folder: str) -> LogMark | None:
    """The mark in the newest commit or checkpoint that carries it. None: no change log wrote the table."""
    names = [path for path, _ in lake.list(f"{folder}/_delta_log/")]
    altered = False
    for path in reversed([p for p in names if _COMMIT.fullmatch(p.rpartition("/")[2])]):
        actions = [json.loads(line) for line in lake.get(path).splitlines()]
        altered |= not foreign.is_ours(actions) and foreign.assess(folder, 0, actions) is not None
        for action in actions:
            found = _of_domain(action.get("domainMetadata"), altered=altered)
            if found is not None:
                return LogMark(found, path)
    for path in reversed([p for p in names if _CHECKPOINT.fullmatch(p.rpartition("/")[2])]):
        with lake.open_input(path) as source, pq.ParquetFile(source) as checkpoint:
            if "domainMetadata" not in checkpoint.schema_arrow.names:
                continue
            for entry in checkpoint.read(["domainMetadata"])["domainMetadata"].to_pylist():
                found = _of_domain(entry, altered=altered)
                if found is not None:
                    return LogMark(found, path)
    return None


def iceberg_folder(lake: Storage, folder: str) -> LogMark | None:
    """The mark in the newest metadata in the folder. None: no change log wrote the table."""
    names = [path for path, _ in lake.list(f"{folder}/metadata/")]
    numbered = {int(m[1] or m[2]): p for p in names if (m := _METADATA.fullmatch(p.rpartition("/")[2]))}
    if not numbered:
        return None
    path = numbered[max(numbered)]
    try:
        found = iceberg(json.loads(lake.get(path)))
    except NotFound:
        return None
    return None if found is None else LogMark(found, path)


def iceberg(metadata: dict[str, Any]) -> TableOwner | None:
    """The owner in a table's metadata, as Iceberg has it in JSON: the property that mirrors the state, which a table
    that replaces another one inherits."""
    text = metadata.get("properties", {}).get(STATE)
    return None if text is None else _owner(text, altered=_altered(metadata, json.loads(text)))


def _altered(metadata: dict[str, Any], mirror: dict[str, Any]) -> bool:
    current = metadata.get("current-snapshot-id", -1)
    if current in (None, -1):
        return mirror.get("snapshot") is not None
    known = {s["snapshot-id"]: snapshot_of(s) for s in metadata.get("snapshots", ())}
    try:
        return isinstance(walk("", current, known.get), Broken)
    except TableStop:
        return True


def _of_domain(entry: dict[str, str] | None, *, altered: bool) -> TableOwner | None:
    if entry is None or entry.get("domain") != DOMAIN:
        return None
    return _owner(entry["configuration"], altered=altered)


def _owner(text: str, *, altered: bool) -> TableOwner:
    """Older formats have the log's id only."""
    state = json.loads(text)
    table_id, generation = state.get("tableId"), state.get("generation")
    return TableOwner(str(state["logId"]), table_id, None if generation is None else RecordNumber(generation), altered)
