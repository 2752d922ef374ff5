"""Copies in a lake with a row for each change, partitioned by the days of the commits, and what must hold of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from typing_extensions import override

from support.conforming import Rows, Subject, log_of
from support.ddl.lake import QuickTable
from support.folder_lake import FolderAccess
from support.histories import HistoryLog, HistoryTable, expected
from support.random_log import KeyOf, first_schema
from tailrace.apply.lost import needed_chunks
from tailrace.batch.applied import Generation
from tailrace.changelog.history import COMMIT_DAY, named, stored
from tailrace.changelog.records.terms import PartitionBy, RecordNumber, Seq, TableSchema
from tailrace.targets.api import NeededChunks, Units
from tailrace.targets.lake.table import LakeTable
from tailrace.targets.lake.unit import LakeUnits

DAY_MICROSECONDS = 86_400_000_000


class DaysLog(HistoryLog):
    """A score of changes are of one day; the first of each are of its first moment, the last are of its last one."""

    target: HistoryTable

    @override
    def moment(self, seq: int) -> int:
        day = (20_000 + seq // 20) * DAY_MICROSECONDS
        return day if seq % 20 < 2 else day + DAY_MICROSECONDS - 1 if seq % 20 > 17 else day + seq

    def bring(self, through: RecordNumber | None = None) -> None:
        """Into the table: all, or the records up to that one."""
        self.target.bring(self, self.record if through is None else through)

    def tidy(self) -> None:
        """Upkeep of the table, as its worker asks for it."""
        needed = NeededChunks(needed_chunks(self.table, self.state, self.target.applied).paths)
        self.target.unit.tidy(stored(self.schema), self.target.applied, needed, 0.0)

    def begin_generation(self, number: int, by: PartitionBy | None, *, keeps: bool) -> None:
        """A resync begins. `keeps`: the former copy stays until the new one is complete."""
        self.schema = self.schema.model_copy(update={"partition_by": by})
        logged = self.table.schemas[-1].model_copy(update={"table": self.schema})
        self.record = RecordNumber(number)
        generation = Generation(self.record, Seq(self.seq), keeps=keeps)
        self.target = HistoryTable(self.target.subject, stored(self.schema), generation)
        update = {"generation": self.record, "added_record": self.record, "schemas": (logged,)}
        self.table = self.table.model_copy(update=update)
        self.history.clear()
        self.chunks.clear()


def partitioned(by: PartitionBy | None = "day") -> TableSchema:
    update = {"history": "Changes", "history_prefix": "sys_", "partition_by": by}
    return first_schema(composite=True).model_copy(update=update)


def begun(subject: Subject, folder: Path, schema: TableSchema, seed: int = 4) -> DaysLog:
    keys: list[KeyOf] = [("r" * (n % 3), n) for n in range(6)]
    return DaysLog(Random(seed), folder, schema, keys, HistoryTable(subject, stored(schema)))


def grown(log: DaysLog, turns: int, rnd: Random) -> None:
    """Late chunks, TRUNCATEs, added and renamed columns, batches of several days and several batches of a day, drivers
    that begin again."""
    for turn in range(turns):
        log.grow()
        if rnd.random() < 0.7:
            log.bring(RecordNumber(rnd.randint(log.target.applied.applied_record, log.record)))
        if turn % 5 == 4:
            log.target.restart()
    log.bring()


def wanted_days(rows: Rows, schema: TableSchema) -> Counter[str | None]:
    """The number of rows of each day."""
    name = named(schema, COMMIT_DAY)
    return Counter(None if row[name] is None else str(row[name]) for row in rows)


def differing(log: DaysLog, wanted: Rows | None = None) -> list[str]:
    """`wanted`: all that the log has, if it is not given."""
    schema = stored(log.schema)
    names = [column.name for column in schema.columns]
    found = [{name: row[name] for name in names} for row in log.target.subject.rows(schema)]
    one, other = Counter(map(_text, found)), Counter(map(_text, expected(log) if wanted is None else wanted))
    return [f"only in the copy: {text}" for text in one - other] + [f"missing: {text}" for text in other - one]


def _text(row: dict[str, Any]) -> str:
    at = {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return repr(sorted((row | at).items()))


def iso(days: int) -> str:
    return str(date(1970, 1, 1) + timedelta(days))


@dataclass(frozen=True)
class Folders:
    """A lake without a format, and without a JVM: see `support.ddl.lake`."""

    folder: Path
    table: QuickTable = field(init=False)
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        place = self.folder / "lake"
        object.__setattr__(self, "table", QuickTable(place.as_uri(), FolderAccess(str(place))))

    def units(self, admit: object) -> Units:
        return LakeUnits(lambda first: LakeTable(self.table, log_of(self.folder), self.table.access, None))

    def rows(self, schema: TableSchema) -> Rows:
        rows: Rows = self.table.rows().to_pylist()
        return rows

    def lose(self, path: str) -> None:
        raise NotImplementedError

    def holds(self, path: str) -> bool:
        return self.table.access.exists(path)

    def days(self) -> Iterator[tuple[str | None, set[str | None]]]:
        """Of each file the day that it is said to have, and those of its rows."""
        for file in self.table.live.values():
            only = QuickTable(self.table.location, self.table.access, self.table.columns, self.table.ids)
            only.schema, only.live = self.table.schema, {file.path: file}
            assert only.schema is not None
            yield file.day, set(wanted_days(only.rows().to_pylist(), only.schema))
