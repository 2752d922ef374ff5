"""Random change logs of one table without a key, of a source that is possible: transactions that stand in the log in
another order than the one in which they become visible, readings of what is visible, TRUNCATEs.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from support.folder_lake import FolderAccess, layout_of
from support.states import chunk, log_state, table_log
from support.transactions import known
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.changelog.state import (
    LoggedChunk,
    LoggedFinish,
    LoggedSegment,
    LoggedTruncate,
    LogState,
    TableLog,
)
from tailrace.contract.places import StorageLocation
from tailrace.snapshot.replay import contained_after, replay_point
from tailrace.sources.postgresql.visibility import PgSnapshot
from tailrace.storage.store import Storage
from tailrace.targets.api import WrittenChunk
from tailrace.targets.lake.files.write import write_file

TABLE = 7
Row = tuple[int | None, str | None]
ROWS: tuple[Row, ...] = ((1, "a"), (1, None), (None, "a"), (None, None))
SCHEMA = TableSchema(
    table_id=TABLE,
    schema_name="public",
    table_name="t",
    version=1,
    columns=(
        Column(name="n", id=1, source_type="int", type="int32"),
        Column(name="t", id=2, source_type="text", type="string"),
    ),
    keyless=True,
)


@dataclass
class Transaction:
    first: int
    changes: list[tuple[int, str, Row | None]] = field(default_factory=list)
    """(sequence, operation, row)"""
    after: set[int] = field(default_factory=set)
    """Who sees this one sees these: they brought what it deletes, or held the lock that it waited for."""


@dataclass
class CountedLog:
    """Grows record by record; a reading sees what is possible."""

    rnd: random.Random
    folder: Path
    seq: int = 0
    record: int = 0
    there: list[tuple[int, Row]] = field(default_factory=list)
    """The source's rows, each with the transaction that brought it."""
    transactions: list[Transaction] = field(default_factory=list)
    seen: int = 0
    """Readings that saw what lies behind their replay point."""

    def __post_init__(self) -> None:
        self.table = table_log(SCHEMA, 0)
        self.access = FolderAccess(str(self.folder))
        self._storage = Storage.open(StorageLocation(location=self.folder.as_uri()))

    @property
    def state(self) -> LogState:
        return log_state(self.table, number=self.record, last_seq=Seq(self.seq))

    def grow(self) -> None:
        self.record += 1
        begun = len(self.transactions)
        for _ in range(self.rnd.randrange(5)):
            self._transact()
        self._log(self.transactions[begun:])
        if self.rnd.random() < 0.4:
            self._read()

    @property
    def rows(self) -> Counter[Row]:
        """The source at the end of the log."""
        return Counter(row for _, row in self.there)

    def _transact(self) -> None:
        made, number = Transaction(self.seq + 1), len(self.transactions)
        emptied = [n for n, t in enumerate(self.transactions) if any(op == "T" for _, op, _ in t.changes)]
        made.after = set(emptied)
        for _ in range(self.rnd.randint(1, 5)):
            kind = self.rnd.random()
            if kind < 0.03:
                made.after = set(range(number))
                self.there.clear()
                self._change(made, "T", None)
            elif kind < 0.45 or not self.there:
                self._insert(made, "I")
            else:
                brought, row = self.there.pop(self.rnd.randrange(len(self.there)))
                made.after |= {brought} - {number}
                self._change(made, "D", row)
                if kind > 0.75:
                    self._insert(made, "M")
        self.seq += self.rnd.random() < 0.2  # another table's row
        self.transactions.append(made)

    def _insert(self, made: Transaction, op: str) -> None:
        row = self.rnd.choice(ROWS)
        self.there.append((len(self.transactions), row))
        self._change(made, op, row)

    def _change(self, made: Transaction, op: str, row: Row | None) -> None:
        self.seq += 1
        made.changes.append((self.seq, op, row))

    def _log(self, new: Sequence[Transaction]) -> None:
        changes = [change for transaction in new for change in transaction.changes]
        at = self.rnd.randrange(len(changes) + 1)
        for part in (changes[:at], changes[at:]):
            rows = [(seq, op, *row) for seq, op, row in part if row is not None]
            if rows:
                self._segment(rows)
        for seq, op, _ in changes:
            if op == "T":
                logged = LoggedTruncate(record=RecordNumber(self.record), seq=Seq(seq), transaction="1", written_at=0)
                self._update(truncates=self.table.truncates.append(logged))

    def _segment(self, rows: Sequence[tuple[object, ...]]) -> None:
        schema = segment_schema(SCHEMA)
        columns = dict(zip(("_seq", "_op", "n", "t"), map(list, zip(*rows, strict=True)), strict=True))
        columns |= {"_commit_ts": [0] * len(rows), "_unchanged": [None] * len(rows)}
        table = pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
        logged = LoggedSegment(record=RecordNumber(self.record), segment=write_segment(self._storage, SCHEMA, table))
        self._update(segments=self.table.segments.append(logged))

    def _read(self) -> None:
        """The whole table as a snapshot shows it that does not see some of the last transactions."""
        hidden: set[int] = set()
        for number in reversed(range(max(0, len(self.transactions) - 6), len(self.transactions))):
            followed = any(number in t.after for n, t in enumerate(self.transactions) if n not in hidden)
            if not followed and self.rnd.random() < 0.4:
                hidden.add(number)
        rows = self._visible(hidden)
        xids = range(10, 10 + len(self.transactions))
        snapshot = PgSnapshot(10, 11 + len(xids), frozenset(10 + number for number in hidden))
        transactions = known(xids, [t.first for t in self.transactions])
        point = replay_point(snapshot, transactions, Seq(self.seq + 1))
        ranges = contained_after(snapshot, transactions, point, Seq(self.seq))
        self.seen += bool(ranges)
        self._register([*rows.elements()], point, ranges)

    def _visible(self, hidden: set[int]) -> Counter[Row]:
        rows = Counter[Row]()
        for number, transaction in enumerate(self.transactions):
            for _, op, row in transaction.changes if number not in hidden else ():
                if row is None:
                    rows.clear()
                else:
                    rows[row] += -1 if op == "D" else 1
        return rows

    def _register(self, rows: list[Row], point: Seq, seen: tuple[tuple[Seq, Seq], ...]) -> None:
        snapshot, at = f"s{self.record}", self.rnd.randrange(len(rows) + 1)
        self.rnd.shuffle(rows)
        logged = []
        for number, part in enumerate((rows[:at], rows[at:])):
            columns = [
                pa.array([row[place] for row in part], kind) for place, kind in enumerate((pa.int32(), pa.string()))
            ]
            written = self.put(f"{snapshot}-{number}", pa.table(columns, names=["n", "t"]))
            read = chunk(
                TABLE, number, snapshot_id=snapshot, path=None if written is None else written.path, rows=len(part),
                size=0 if written is None else written.size, replay_point=point, seen=seen, layout=self.form,
            )  # fmt: skip
            logged.append(LoggedChunk(record=RecordNumber(self.record), chunk=read))
        finish = LoggedFinish(
            record=RecordNumber(self.record), snapshot_id=snapshot, complete=True, replay_point=point,
            chunks=tuple(logged),
        )  # fmt: skip
        self._update(
            chunks=(*self.table.chunks, *logged),
            finishes=(*self.table.finishes, finish),
            read_record=RecordNumber(self.record),
        )

    @property
    def form(self) -> str:
        """The form in which the target takes chunks."""
        return "form"

    def put(self, name: str, rows: pa.Table) -> WrittenChunk | None:
        path = f"file://{self.folder}/data/{name}.parquet"
        written = write_file(self.access, path, layout_of(SCHEMA), [rows])
        return None if written is None else WrittenChunk(path, written.file.rows, written.file.size)

    def _update(self, **changes: object) -> None:
        self.table = TableLog.model_validate({**dict(self.table), **changes})
