"""Copies in BigQuery's emulator: killed drivers, divided transactions, names, schema changes, what is refused."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from support.bigquery import BigQueryDatabase, BigQueryService
from support.conforming import LOG, LogOf, Table
from support.database_copies import settle
from support.killed import killed_at
from support.lake import table_schema
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.random_log import first_schema
from support.resources import replicator as document_of
from tailrace import sources, targets
from tailrace.batch.applied import FIRST, AppliedState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.contract.resources import Credentials, Replicator
from tailrace.errors import AuthenticationFailed, Retry, TableStop, TargetRefused
from tailrace.targets.api import Opening, TableFailed, TargetRemoval, UnitBatch
from tailrace.targets.sql.unit import SqlUnit

SHOP = """
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, "größe in cm" numeric(9,2), tags text[], doc jsonb, at timestamptz,
    raw bytea);
INSERT INTO shop.item SELECT n, n / 7.0, ARRAY['a', NULL], '{"a": [1, null]}', '2020-02-29 12:00+00', '\\x00ff'
    FROM generate_series(1, 50) n;
CREATE TABLE shop.visit (a int, b text, PRIMARY KEY (a, b));
"""


@pytest.fixture
def copies(tmp_path: Path, bigquery: BigQueryService) -> BigQueryDatabase:
    (tmp_path / "log").mkdir()
    return BigQueryDatabase(tmp_path, bigquery, bigquery.new_dataset())


def begun(copies: BigQueryDatabase, folder: Path, seed: int = 1) -> tuple[LogOf, Table]:
    table = Table(copies, first_schema(composite=False))
    return LogOf(Random(seed), folder, table.schema, [(n,) for n in range(9)], table), table


def test_a_killed_driver_leaves_nothing_of_its_batch_or_all_of_it(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    held = copies.rows(table.schema)
    for seam, done in (("apply.before-commit", False), ("apply.after-commit", True)):
        log.grow_by_changes(9)
        before = table.applied.applied_record
        killed_at(seam, lambda: Table(copies, table.schema).follow(log))
        table.restart()
        assert (table.applied.applied_record == log.record, table.applied.applied_record == before) == (done, not done)
        assert (copies.rows(table.schema) != held) == done
        table.follow(log)
        held = copies.rows(table.schema)
    own = copies.server.tables(f"{copies.dataset}_tailrace")
    assert len([name for name in own if name.startswith("tailrace_")]) <= 4, "those of the killed drivers, which expire"


def test_a_driver_that_was_overtaken_changes_nothing(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    late = Table(copies, table.schema)
    log.grow_by_changes(9)
    part = cut(log.state, table.schema.table_id, late.applied, log.record)
    assert part is not None
    table.follow(log)
    held = copies.rows(table.schema)
    with pytest.raises((Retry, TableFailed)):
        late.apply(part)
    assert copies.rows(table.schema) == held


class Several:
    """Tables that are moved together by the same changes."""

    def __init__(self, copies: BigQueryDatabase, folder: Path, count: int) -> None:
        self._copies, self._log = copies, begun(copies, folder)[0]
        first = self._log.schema
        self._schemas = {
            100 + n: first.model_copy(update={"table_id": 100 + n, "table_name": f"t{n}"}) for n in range(count)
        }
        self.open()

    def open(self) -> None:
        unit = self._copies.units(lambda: None).group()
        assert isinstance(unit, SqlUnit)
        unit.units.most_tables = 2
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


def test_more_tables_than_a_transaction_may_have_are_divided_and_are_level_in_the_end(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    several = Several(copies, tmp_path, 5)
    batch = several.grow()
    several.unit.apply(batch)
    several.open()
    assert several.held() == [batch.record] * 5
    assert all(opened.level for opened in several.opened.values())
    one, *others = several.rows()
    assert one and others == [one] * 4
    second = several.grow()
    killed_at("apply.before-commit", lambda: several.unit.apply(second), visit=3)
    several.open()
    assert several.held() == [second.record] * 4 + [batch.record]
    assert [opened.level for opened in several.opened.values()] == [False] * 4 + [True]


def test_a_verification_of_a_table_that_changes_meanwhile_is_thrown_away(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    log, table = begun(copies, tmp_path)
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


REFUSED: list[tuple[str, TableSchema]] = [
    ("has no key", table_schema([("a", "int64")], []).model_copy(update={"keyless": True})),
    ("the history SoftDelete", table_schema([("a", "int64")], ["a"]).model_copy(update={"history": "SoftDelete"})),
    ("the history Versions", table_schema([("a", "int64")], ["a"]).model_copy(update={"history": "Versions"})),
    ("floating-point number", table_schema([("a", "float64")], ["a"])),
    ("'Id' and 'id' have the same name|'id' and 'Id'", table_schema([("id", "int64"), ("Id", "string")], ["id"])),
    ("have 300 characters", table_schema([("id", "int64"), ("é" * 60, "string")], ["id"])),
]


@pytest.mark.parametrize(("why", "schema"), REFUSED)
def test_a_table_that_cannot_be_copied_is_refused_by_name(
    copies: BigQueryDatabase, why: str, schema: TableSchema
) -> None:
    with pytest.raises(TableStop, match=why):
        copies.server.target(copies.dataset).shown(schema)
    with pytest.raises((TableStop, TableFailed)):
        copies.units(lambda: None).alone().open({schema.table_id: Opening(schema, FIRST)}, LOG)
    assert copies.server.tables(copies.dataset) == []


def test_what_is_in_the_way_is_told_before_anything_is_touched(copies: BigQueryDatabase, tmp_path: Path) -> None:
    target, schema = copies.server.target(copies.dataset), first_schema(composite=False)
    assert target.examine() and target.obstacles([schema], None) == []
    _, table = begun(copies, tmp_path)
    assert target.obstacles([schema], LOG) == []
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        target.obstacles([schema], "log-2")
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        copies.units(lambda: None).alone().open({9: Opening(schema, FIRST)}, "log-2")
    elsewhere = copies.server.target(copies.dataset, location="US")
    for look in (elsewhere.examine, lambda: elsewhere.obstacles([schema], LOG)):
        with pytest.raises(TargetRefused, match="is in EU, not in US"):
            look()
    other = copies.server.new_dataset()
    assert copies.server.target(other).examine()
    with copies.server.client() as asked:
        assert asked.dataset(other) is None
        asked.call("POST", "datasets", json={"datasetReference": {"datasetId": other}, "location": "EU"})
    copies.server.query(f"CREATE TABLE `{other}`.`{schema.table_name}` (a INT64)")
    (found,) = copies.server.target(other).obstacles([schema], LOG)
    assert found.level == "fail" and "that Tailrace has no record of" in found.message
    assert table.applied.applied_record == 0


def test_a_key_that_is_none_is_refused(copies: BigQueryDatabase, tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    spec = copies.server.spec(copies.dataset)
    for text in (None, "{}", "no json"):
        if text is not None:
            key.write_text(text)
        given = spec.model_copy(update={"credentials": Credentials(file=str(key))})
        with pytest.raises(AuthenticationFailed):
            targets.open(given).examine()


def test_removal_takes_what_is_its_own_and_nothing_else(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(4)
    table.follow(log)
    copies.server.query(f"CREATE TABLE `{copies.dataset}`.`other` (a INT64)")
    removal: TargetRemoval = copies.server.target(copies.dataset).removal(cast(Any, None))
    name = (table.schema.schema_name, table.schema.table_name)
    owner = removal.owner(name)
    assert owner is not None and owner.log_id == LOG and not owner.altered
    removal.drop(name)
    removal.finish(LOG)
    assert not removal.exists(name) and removal.owner(name) is None
    assert copies.server.tables(copies.dataset) == ["other"]
    with copies.server.client() as asked:
        assert asked.dataset(f"{copies.dataset}_tailrace") is None


@pytest.mark.timeout(300)
def test_a_source_is_copied_with_its_changes_of_columns(
    postgres: PostgresServer, copies: BigQueryDatabase, tmp_path: Path
) -> None:
    postgres.execute(SHOP)
    document = document_of(
        "copies",
        source=postgres.source(),
        storage={"location": (tmp_path / "log").as_uri()},
        tables={"include": ["shop.*"]},
        target=copies.server.spec(copies.dataset).model_dump(mode="json", by_alias=True, exclude_none=True),
    )
    replicator = Replicator.model_validate(document)
    source = sources.open(replicator.spec.source, "tailrace test")
    copy = Pipeline(document, source, tmp_path, lake(replicator, cast(Any, None)))
    size = ("size", "size")
    steps = (
        ("UPDATE shop.item SET id = id + 1000 WHERE id <= 3", '"größe in cm"', "`gr__xf6___xdf_e__x20_in__x20_cm`"),
        ('ALTER TABLE shop.item RENAME "größe in cm" TO size; UPDATE shop.item SET size = 1.5 WHERE id = 9', *size),
        ("ALTER TABLE shop.item ADD extra text; UPDATE shop.item SET extra = 'x' || id WHERE id < 9", "extra", "extra"),
        ("ALTER TABLE shop.item DROP tags; DELETE FROM shop.item WHERE id = 30", *size),
        ("TRUNCATE shop.item; INSERT INTO shop.item (id, size) VALUES (7, 0.25)", *size),
    )
    with copy.running():
        settle(copy)
        for step, asked, shown in steps:
            postgres.execute(step)
            settle(copy)
            there = copies.server.query(f"SELECT id, {shown} FROM `{copies.dataset}`.`item` ORDER BY id")
            assert there == postgres.execute(f"SELECT id, {asked} FROM shop.item ORDER BY id"), step
    assert "tags" not in [field["name"] for field in copies.resource("item")["schema"]["fields"]]
