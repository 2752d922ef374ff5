"""Whose a table is: the id of the change log that a table's newest state carries. Read without Spark, by `drop`.

Apply has the full readers of the state; these need no JVM, and tell the file that says it: deleted last, it proves to
the next `drop` whose the rest is.
"""

import json
import re
from dataclasses import dataclass

import pyarrow.parquet as pq

from tailrace.storage.store import NotFound, Storage
from tailrace.targets.lake.delta.state import DOMAIN
from tailrace.targets.lake.iceberg.state import STATE

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
_METADATA = re.compile(r"(?:v(\d+)|(\d{5,})-[-\w]+)\.metadata\.json")
"""As a folder catalog names it, and as all others do."""


@dataclass(frozen=True)
class LogMark:
    log_id: str
    path: str
    """The file that says it."""


def delta(lake: Storage, folder: str) -> LogMark | None:
    """Of the newest commit or checkpoint that carries it. None: no change log wrote the table."""
    names = [path for path, _ in lake.list(f"{folder}/_delta_log/")]
    for path in reversed([p for p in names if _COMMIT.fullmatch(p.rpartition("/")[2])]):
        for line in lake.get(path).splitlines():
            found = _of_domain(json.loads(line).get("domainMetadata"))
            if found is not None:
                return LogMark(found, path)
    for path in reversed([p for p in names if _CHECKPOINT.fullmatch(p.rpartition("/")[2])]):
        with lake.open_input(path) as source, pq.ParquetFile(source) as checkpoint:
            if "domainMetadata" not in checkpoint.schema_arrow.names:
                continue
            for entry in checkpoint.read(["domainMetadata"])["domainMetadata"].to_pylist():
                found = _of_domain(entry)
                if found is not None:
                    return LogMark(found, path)
    return None


def iceberg_folder(lake: Storage, folder: str) -> LogMark | None:
    """Of the newest metadata in the folder. None: no change log wrote the table."""
    names = [path for path, _ in lake.list(f"{folder}/metadata/")]
    numbered = {int(m[1] or m[2]): p for p in names if (m := _METADATA.fullmatch(p.rpartition("/")[2]))}
    if not numbered:
        return None
    path = numbered[max(numbered)]
    try:
        metadata = json.loads(lake.get(path))
    except NotFound:
        return None
    found = iceberg_property(metadata.get("properties", {}).get(STATE))
    return None if found is None else LogMark(found, path)


def iceberg_property(text: str | None) -> str | None:
    """Of the table property that mirrors the state."""
    return None if text is None else str(json.loads(text)["logId"])


def _of_domain(entry: dict[str, str] | None) -> str | None:
    if entry is None or entry.get("domain") != DOMAIN:
        return None
    return str(json.loads(entry["configuration"])["logId"])
