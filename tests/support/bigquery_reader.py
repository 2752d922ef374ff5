"""Tables in BigQuery's emulator as a client reads them that is not Tailrace's."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import requests

from support.bigquery import BigQueryService
from tailrace.targets.bigquery import names

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "INTEGER": (pa.int64(), int),
    "FLOAT": (pa.float64(), float),
    "BOOLEAN": (pa.bool_(), lambda text: text == "true"),
    "NUMERIC": (pa.decimal128(38, 9), Decimal),
    "BIGNUMERIC": (pa.decimal256(76, 38), Decimal),
    "STRING": (pa.string(), str),
    "BYTES": (pa.binary(), base64.b64decode),
    "DATE": (pa.date32(), date.fromisoformat),
    "TIME": (pa.time64("us"), time.fromisoformat),
    "DATETIME": (pa.timestamp("us"), datetime.fromisoformat),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), lambda text: _EPOCH + timedelta(microseconds=int(text))),
}
"""Types of the interface: Arrow's, and what its text says."""
_MOST = 1_000_000


@dataclass(frozen=True)
class BigQueryCopies:
    """The data set of one Replicator."""

    service: BigQueryService
    dataset: str
    more: Mapping[str, object] = field(default_factory=dict)
    """Fields of the target's block."""

    @classmethod
    def of(cls, service: BigQueryService, **more: object) -> "BigQueryCopies":
        """A data set that is not there yet."""
        return cls(service, service.new_dataset(), more)

    @property
    def target(self) -> dict[str, Any]:
        """`spec.target`."""
        return self.service.spec(self.dataset, **self.more).model_dump(mode="json", by_alias=True, exclude_none=True)

    def resource(self, table: str) -> dict[str, Any] | None:
        """What the interface tells of a table; None: it is not there."""
        answer = requests.get(f"{self._root}/datasets/{self.dataset}/tables/{names.written(table)}", timeout=60)
        return answer.json() if answer.ok else None

    def kinds(self, table: str) -> dict[str, str]:
        """Types of the interface by column, and `ARRAY` for those that are repeated."""
        fields = (self.resource(table) or {"schema": {"fields": []}})["schema"]["fields"]
        return {names.read(f["name"]): "ARRAY" if f.get("mode") == "REPEATED" else f["type"] for f in fields}

    def key(self, table: str) -> list[str]:
        """As the table's description tells: nothing enforces it."""
        there = self.resource(table)
        said = {"columns": {}, "key": []} if there is None else json.loads(there["description"])
        by_id = {id_: names.read(name) for name, id_ in said["columns"].items()}
        return [by_id[id_] for id_ in said["key"]]

    def read(self, table: str) -> pa.Table:
        """All rows, under the source's names. `FileNotFoundError`: there is no such table."""
        asked: dict[str, Any] = {
            "query": f"SELECT * FROM `{self.dataset}`.`{names.written(table)}`",
            "useLegacySql": False,
            "formatOptions": {"useInt64Timestamp": True},
            "maxResults": _MOST,
        }
        answer = requests.post(f"{self._root}/queries", json=asked, timeout=60)
        if not answer.ok:
            raise FileNotFoundError(answer.text)
        said = answer.json()
        assert "pageToken" not in said
        columns = {}
        for number, one in enumerate(said["schema"]["fields"]):
            kind, value = _TYPES[one["type"]]
            cells = [row["f"][number]["v"] for row in said.get("rows", ())]
            if one.get("mode") == "REPEATED":
                lists = [[value(element["v"]) for element in cell] for cell in cells]
                columns[names.read(one["name"])] = pa.array(lists, pa.list_(kind))
                continue
            columns[names.read(one["name"])] = pa.array([None if c is None else value(c) for c in cells], kind)
        return pa.table(columns)

    def drop(self) -> None:
        """Delete the data set, and Tailrace's own beside it."""
        for dataset in (self.dataset, f"{self.dataset}_tailrace"):
            requests.delete(f"{self._root}/datasets/{dataset}", params={"deleteContents": "true"}, timeout=60)

    @property
    def _root(self) -> str:
        return f"{self.service.endpoint}/bigquery/v2/projects/{self.service.project}"
