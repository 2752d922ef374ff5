"""What a copy with a row for each change must hold, told from the changes themselves."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import override

from support.conforming import LogOf, Rows, Table
from support.random_log import KeyOf, RandomLog
from tailrace.apply.history_chunks import HistoryChunkWriter
from tailrace.batch.history import require_history, stored_slice
from tailrace.batch.rule import UNCHANGED
from tailrace.batch.slice import TableSlice, cut
from tailrace.changelog.history import COMMIT_DAY, COMMIT_TIME, OP, SEQ, named, stored
from tailrace.changelog.history import UNCHANGED as NOT_CARRIED
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.targets.api import ChunkWriter

LETTERS = {"I": "c", "U": "u", "D": "d", "M": "c", "T": "t"}


@dataclass
class HistoryTable(Table):
    """A table of a subject with a row for each change, moved as the worker of its unit moves it."""

    def bring(self, log: RandomLog, through: RecordNumber) -> TableSlice | None:
        part = cut(log.state, self.schema.table_id, self.applied, through)
        if part is not None:
            require_history(log.table, part)
            self.apply(stored_slice(part))
        return part


class HistoryLog(LogOf):
    @property
    @override
    def writer(self) -> ChunkWriter:
        return HistoryChunkWriter(self.schema, self.target.unit.chunk_writer(stored(self.schema)))


def expected(log: RandomLog) -> Rows:
    """The rows under the names of the newest schema."""
    versions = {logged.table.version: logged.table for logged in log.table.schemas}
    changes = (
        of_change(log, versions[version], (LETTERS[change.op], change.seq), change.values, change.key)
        for change, version in log.history
    )
    read = (
        of_change(log, versions[chunk.schema_version], ("r", chunk.replay_point - 1), values)
        for chunk, rows in log.chunks
        for values in rows.rows.values()
    )
    return [*changes, *read]


def of_change(
    log: RandomLog, version: TableSchema, what: tuple[str, int], values: Iterable[object], key: KeyOf | None = None
) -> dict[str, Any]:
    """`what`: the letter, and the sequence."""
    op, seq = what
    names = {column.id: column.name for column in log.schema.columns}
    row: dict[str, Any] = dict.fromkeys(names.values())
    if op == "d" and key is not None:
        row |= {c.name: key[c.key] for c in version.columns if c.key is not None}
    lacking = [c.name for c, value in zip(version.columns, values, strict=False) if value is UNCHANGED]
    row |= {names[c.id]: v for c, v in zip(version.columns, values, strict=False) if v is not UNCHANGED}
    logged = op not in "rt"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=log.moment(seq)) if logged else None
    added = {OP: op, SEQ: seq, COMMIT_TIME: at, NOT_CARRIED: json.dumps(lacking) if lacking else None}
    if log.schema.partition_by is not None:
        added[COMMIT_DAY] = None if at is None else at.date()
    return row | {named(log.schema, name): value for name, value in added.items()}
