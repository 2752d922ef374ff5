"""What the tests of copies in BigQuery and in Snowflake share."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest

from support.conforming import LOG, LogOf, Subject, Table, log_of
from support.database_copies import settle
from support.lake import table_schema
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.random_log import first_schema
from support.resources import replicator as document_of
from support.rewinding import await_cut, keeper
from support.states import log_state, logged, table_log
from tailrace import sources
from tailrace.batch.applied import FIRST, AppliedState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.changelog.state import LoggedSegment, SegmentList
from tailrace.changelog.types import arrow_type
from tailrace.cli.cut_text import lines
from tailrace.contract.resources import Replicator, TargetSpec
from tailrace.driver.asking.rewind import require_lake
from tailrace.errors import Retry, RewindRefused, TableStop, TargetRefused
from tailrace.places import Places
from tailrace.targets.api import Opening, TableFailed, UnitBatch
from tailrace.targets.sql.unit import SqlUnit

SHOP = """
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, "größe in cm" numeric(9,2), tags text[], doc jsonb, at timestamptz,
    raw bytea);
INSERT INTO shop.item SELECT n, n / 7.0, ARRAY['a', NULL], '{"a": [1, null]}', '2020-02-29 12:00+00', '\\x00ff'
    FROM generate_series(1, 50) n;
CREATE TABLE shop.visit (a int, b text, PRIMARY KEY (a, b));
"""
STEPS = (
    ("UPDATE shop.item SET id = id + 1000 WHERE id <= 3", "größe in cm"),
    ('ALTER TABLE shop.item RENAME "größe in cm" TO size; UPDATE shop.item SET size = 1.5 WHERE id = 9', "size"),
    ("ALTER TABLE shop.item ADD extra text; UPDATE shop.item SET extra = 'x' || id WHERE id < 9", "extra"),
    ("ALTER TABLE shop.item DROP tags; DELETE FROM shop.item WHERE id = 30", "size"),
    ("TRUNCATE shop.item; INSERT INTO shop.item (id, size) VALUES (7, 0.25)", "size"),
)
"""Statements, and the column that is compared after them."""
REFUSED: list[tuple[str, TableSchema]] = [
    ("has no key", table_schema([("a", "int64")], []).model_copy(update={"keyless": True})),
    ("the history SoftDelete", table_schema([("a", "int64")], ["a"]).model_copy(update={"history": "SoftDelete"})),
    ("the history Versions", table_schema([("a", "int64")], ["a"]).model_copy(update={"history": "Versions"})),
    ("floating-point number", table_schema([("a", "float64")], ["a"])),
]
"""Tables that no warehouse can have, and why."""


def begun(copies: Subject, folder: Path, seed: int = 1) -> tuple[LogOf, Table]:
    table = Table(copies, first_schema(composite=False))
    return LogOf(Random(seed), folder, table.schema, [(n,) for n in range(9)], table), table


def exchange_names(log: LogOf) -> None:
    """Two columns get each other's name, which no statement does but one that writes the table again."""
    other = {"t": "u", "u": "t"}
    columns = [column.model_copy(update={"name": other.get(column.name, column.name)}) for column in log.schema.columns]
    log.schema = log.schema.model_copy(update={"version": log.schema.version + 1, "columns": tuple(columns)})
    log._update(schemas=(*log.table.schemas, logged(log.schema, log.record, log.seq)))


def rename_column(log: LogOf) -> None:
    """Which no row is read for."""
    columns = [c.model_copy(update={"name": "title"}) if c.name == "t" else c for c in log.schema.columns]
    log.schema = log.schema.model_copy(update={"version": log.schema.version + 1, "columns": tuple(columns)})
    log._update(schemas=(*log.table.schemas, logged(log.schema, log.record, log.seq)))


class Several:
    """Tables that are moved together by the same changes."""

    def __init__(self, copies: Subject, folder: Path, count: int, most: int | None = None) -> None:
        self._copies, self._log, self._most = copies, begun(copies, folder)[0], most
        first = self._log.schema
        self._schemas = {
            100 + n: first.model_copy(update={"table_id": 100 + n, "table_name": f"t{n}"}) for n in range(count)
        }
        self.open()

    def open(self) -> None:
        unit = self._copies.units(lambda: None).group()
        assert isinstance(unit, SqlUnit)
        unit.units.most_tables = self._most
        self.unit = unit
        self.opened = unit.open({i: Opening(schema, FIRST) for i, schema in self._schemas.items()}, LOG)

    def grow(self) -> UnitBatch:
        self._log.grow_by_changes(4)
        parts = {}
        for table_id, schema in self._schemas.items():
            part = cut(self._log.state, self._log.schema.table_id, self.opened[table_id].applied, self._log.record)
            assert part is not None
            versions = dict.fromkeys(part.versions, schema)
            parts[table_id] = replace(part, table_id=table_id, schema=schema, versions=versions)
        return UnitBatch(self._log.record, frozenset(parts), parts)

    def held(self) -> list[RecordNumber]:
        return [opened.applied.applied_record for opened in self.opened.values()]

    def rows(self) -> list[list[str]]:
        return [sorted(map(repr, self._copies.rows(schema))) for schema in self._schemas.values()]


def require_overtaken(copies: Subject, folder: Path) -> None:
    """A driver that was overtaken changes nothing."""
    log, table = begun(copies, folder)
    late = Table(copies, table.schema)
    log.grow_by_changes(9)
    part = cut(log.state, table.schema.table_id, late.applied, log.record)
    assert part is not None
    table.follow(log)
    held = copies.rows(table.schema)
    with pytest.raises(Retry):
        late.apply(part)
    assert held and copies.rows(table.schema) == held


def require_policies_outlast(
    copies: Subject, other: Subject, folder: Path, impose: Callable[[], object], lift: Callable[[], object]
) -> None:
    """A table on which people have put a policy, `eu`, stops before it would be written again, and is as one without it
    once they have dropped it. `other`: where that one is."""
    log, table = begun(copies, folder)
    undisturbed = Table(other, table.schema)
    log.grow_by_changes(9)
    table.follow(log)
    undisturbed.follow(log)
    held = copies.rows(table.schema)
    impose()
    exchange_names(log)
    log.grow_by_changes(9)
    for _ in range(2):
        with pytest.raises(TableFailed) as failed:
            table.follow(log)
        assert isinstance(failed.value.error, TargetRefused)
        assert "policies (eu)" in failed.value.error.message
        table.restart()
    assert held and copies.rows(table.schema) == held
    lift()
    table.follow(log)
    undisturbed.follow(log)
    wanted, found = (sorted(map(repr, each.rows(log.schema))) for each in (other, copies))
    assert found and found == wanted


UNFIT_DATES = (("date", -719_163), ("date", 2_932_897), ("timestamp", -62_135_596_800_000_001))
"""Days and microseconds since 1970 that are in the year before year 1, which is 1 BC, or after 9999."""


def require_dates_refused(copies: Subject, folder: Path, kind: str, number: int) -> None:
    """A date that warehouses do not have is refused with its table and column, by the log and by a chunk."""
    schema = table_schema([("id", "int64"), ("born", kind)], ["id"])
    table = Table(copies, schema)
    rows = pa.table({"id": [1], "born": pa.array([number], arrow_type(kind))})
    with pytest.raises(TableStop, match="'born' has a date outside of the years 1 to 9999") as stopped:
        table.unit.chunk_writer(schema).write("s", 0, [rows])
    assert stopped.value.table == schema.name
    layout = segment_schema(schema)
    own = {"_seq": 1, "_op": "I", "_commit_ts": 0}
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.array([own.get(field.name)], field.type)
        for field in layout
    ]
    segment = write_segment(log_of(folder), schema, pa.table(columns, schema=layout))
    logged = SegmentList.of([LoggedSegment(record=RecordNumber(2), segment=segment)])
    state = log_state(table_log(schema, segments=logged), number=2, last_seq=Seq(1))
    part = cut(state, schema.table_id, table.applied, RecordNumber(2))
    assert part is not None
    with pytest.raises(TableFailed) as failed:
        table.apply(part)
    assert isinstance(failed.value.error, TableStop) and "'born' has a date outside" in failed.value.error.message
    assert copies.rows(schema) == []


def require_thrown_away(copies: Subject, folder: Path) -> None:
    """A verification of a table that changes meanwhile says nothing."""
    log, table = begun(copies, folder)
    log.grow_by_changes(9)
    table.follow(log)
    look = table.unit.look(table.schema, table.applied)
    found = look.find(["id"], [("1",), ("2",)], ["id"], 5)
    assert found.applied == table.applied

    def expect(applied: AppliedState) -> Any:
        log.grow_by_changes(3)
        Table(copies, table.schema).follow(log)
        part = cut(log.state, table.schema.table_id, replace(applied, applied_record=RecordNumber(0)), log.record)
        assert part is not None
        return replace(part, chunks=(log_chunk(log),))

    def log_chunk(log: LogOf) -> Any:
        while not log.chunks:
            log._chunk()
        return log.chunks[0][0]

    with pytest.raises(Retry, match="was changed while it was compared"):
        look.compare(expect)


def copying(source: dict[str, object], spec: TargetSpec, folder: Path, **more: object) -> Pipeline:
    """A Replicator of the source's tables `shop.*`, which is not running yet. `more`: fields of its spec."""
    document = document_of(
        "copies",
        source=source,
        storage={"location": (folder / "log").as_uri()},
        tables={"include": ["shop.*"]},
        target=spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        **more,
    )
    replicator = Replicator.model_validate(document)
    opened = sources.open(replicator.spec.source, "tailrace test")
    return Pipeline(document, opened, folder, lake(replicator, cast(Any, None)))


def require_followed(
    postgres: PostgresServer,
    spec: TargetSpec,
    folder: Path,
    read: Callable[[str], list[tuple[Any, ...]]],
    then: Callable[[Pipeline], None] = lambda _: None,
) -> None:
    """A source is copied with its changes of columns. `read`: ids and values of a column of `item`, by the id. `then`
    looks at the level copy."""
    postgres.execute(SHOP)
    copy = copying(postgres.source(), spec, folder)
    with copy.running():
        settle(copy)
        for step, column in STEPS:
            postgres.execute(step)
            settle(copy)
            assert read(column) == postgres.execute(f'SELECT id, "{column}" FROM shop.item ORDER BY id'), step
        made = keeper(copy)
        made.make("noon")
        await_cut(copy, made, "noon")
        (kept,) = made.reports()
        assert {line.strip() for line in islice(lines(kept), 1, None)} == {
            f"shop.{name}: passed (no version)" for name in ("item", "visit")
        }
        with pytest.raises(RewindRefused, match="keeps no former versions"):
            require_lake(Places(copy.replicator.spec))
        then(copy)
