"""Arrays of PostgreSQL as repeated columns (`target.bigquery.lists`), in BigQuery's emulator: by chunk and by log, and
what such columns cannot hold."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from support.bigquery import BigQueryDatabase, BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.conforming import LOG, LogOf, Table, by_rule, equal, rows_of
from support.database_copies import settle
from support.killed import killed_at
from support.lake import table_schema
from support.postgres import PostgresServer
from support.random_log import KeyOf, first_schema
from support.warehouse import copying
from tailrace.batch.applied import Generation
from tailrace.batch.rule import TargetState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import Column, RecordNumber, Seq
from tailrace.changelog.types import element_of
from tailrace.errors import SchemaChangeUnsupported, TableStop
from tailrace.targets.api import TableFailed

LISTS = {
    "tags": "text[]",
    "n": "int[]",
    "p": "numeric(9,2)[]",
    "f": "float8[]",
    "at": "timestamptz[]",
    "raw": "bytea[]",
    "sure": "bool[]",
    "born": "date[]",
}
ITEM = f"""
CREATE SCHEMA shop;
CREATE TABLE shop.item (id int PRIMARY KEY, note text, {", ".join(f"{n} {k} NOT NULL" for n, k in LISTS.items())},
    plain text[]);
ALTER TABLE shop.item ALTER tags SET STORAGE EXTERNAL;
INSERT INTO shop.item SELECT i, 'a', ARRAY['x', '', repeat('y', 3000)], ARRAY[i, -i], ARRAY[i / 7.0, 0],
    ARRAY[0.1, '-0', 'NaN', 'Infinity']::float8[], ARRAY['2020-02-29 12:00+00']::timestamptz[],
    ARRAY['\\x00ff']::bytea[], ARRAY[true, false], ARRAY['0001-01-01', '9999-12-31']::date[], ARRAY[NULL, 'z']
    FROM generate_series(1, 9) i;
INSERT INTO shop.item VALUES (10, NULL, {", ".join(["'{}'"] * len(LISTS))}, NULL);
"""
STEPS = (
    "UPDATE shop.item SET note = 'b', n = n || 5 WHERE id < 5",  # the log leaves `tags` out
    "UPDATE shop.item SET id = id + 100 WHERE id = 4; UPDATE shop.item SET tags = '{}' WHERE id = 5",
    "DELETE FROM shop.item WHERE id = 6;"
    " INSERT INTO shop.item SELECT 200, note, n::text[], n, p, f, at, raw, sure, born FROM shop.item WHERE id = 1",
    "ALTER TABLE shop.item DROP plain; UPDATE shop.item SET n = '{7}' WHERE id = 8",
)

KINDS = {"Text": "STRING", "Repeated": "ARRAY<FLOAT64>"}


@pytest.fixture
def copies(tmp_path: Path, bigquery: BigQueryService) -> BigQueryDatabase:
    (tmp_path / "log").mkdir()
    return BigQueryDatabase(tmp_path, bigquery, bigquery.new_dataset())


def shown(value: Any) -> str:
    """Equal for equal values: one NaN is like another, -0.0 is not like 0.0, zeros of a decimal do not count."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Decimal):
        return str(value.normalize())
    return repr(value.astimezone(UTC) if isinstance(value, datetime) else value)


@pytest.mark.timeout(300)
def test_arrays_are_repeated_columns_and_a_null_stops_the_table_until_it_is_gone(
    postgres: PostgresServer, bigquery: BigQueryService, tmp_path: Path
) -> None:
    postgres.execute(ITEM)
    copies = BigQueryCopies.of(bigquery)
    spec = bigquery.spec(copies.dataset, lists="Repeated")
    options = [{"match": "shop.item", "as": dict.fromkeys(LISTS, "list")}]
    copy = copying(postgres.source(), spec, tmp_path, options=options)

    def require_equal() -> None:
        settle(copy)
        names = ["id", "note", *LISTS]
        found = [tuple(row.values()) for row in copies.read("item").select(names).to_pylist()]
        rows = postgres.execute(f"SELECT {', '.join(names)} FROM shop.item ORDER BY id")
        assert shown(sorted(found, key=lambda row: int(row[0]))) == shown(rows)

    with copy.running():
        require_equal()
        fields = (copies.resource("item") or {})["schema"]["fields"]
        assert {one["name"] for one in fields if one.get("mode") == "REPEATED"} == set(LISTS)
        for step in STEPS:
            postgres.execute(step)
            require_equal()
        asked = copy.ask("shop.item", mode="Verify")
        copy.until(lambda state: state.snapshots[asked].ended is not None, work=True)
        (verified,) = copy.driver.control.report(asked).tables
        assert (verified.compared.rows, verified.fault) == (10, None)
        assert not verified.compared.differences and not verified.compared.undecided

        def require_stopped(change: str, why: str) -> None:
            """Until the table is read again."""
            postgres.execute(change)
            copy.until(lambda _: copy.driver.faults(), work=True)
            (table,) = copy.driver.control.status().tables
            assert table.fault is not None and why in table.fault.message

        def read_again() -> None:
            copy.ask("shop.item", resync=True)
            copy.until(lambda _: not copy.driver.faults(), work=True)

        require_stopped(
            "INSERT INTO shop.item SELECT 300, note, '{NULL}', n, p, f, at, raw, sure, born FROM shop.item"
            " WHERE id = 1",
            "'tags' has a list with NULL in it",
        )
        postgres.execute("UPDATE shop.item SET tags = '{}' WHERE id = 300")
        read_again()
        require_equal()
        retyped = "ALTER TABLE shop.item ALTER n TYPE text[]; DELETE FROM shop.item WHERE id = 2"
        require_stopped(retyped, "'n' is new and is to be ARRAY<STRING>")
        read_again()
        require_equal()


@pytest.mark.parametrize(("before", "after"), [("Text", "Repeated"), ("Repeated", "Text")])
def test_a_table_that_is_idle_stops_after_a_change_of_lists_until_it_is_read_again(
    copies: BigQueryDatabase, before: str, after: str
) -> None:
    schema = table_schema([("id", "int64"), ("f", "list<float64>"), ("note", "string")], ["id"])
    Table(replace(copies, lists=before), schema)
    changed = replace(copies, lists=after)
    with pytest.raises(TableFailed) as failed:
        Table(changed, schema)
    stop = failed.value.error
    assert isinstance(stop, SchemaChangeUnsupported) and f"'f' is {KINDS[before]} in the target" in stop.message
    found = {one.message: one.level for one in changed.target.obstacles([schema], LOG)}
    assert found[stop.message] == "fail"
    as_text = table_schema([("id", "int64"), ("f", "string"), ("note", "string")], ["id"])
    assert changed.target.obstacles([as_text], LOG) == [], "such a table starts over"
    again = Table(changed, schema, Generation(RecordNumber(4), Seq(0), keeps=True))
    assert again.replacing
    assert stop.message not in {one.message for one in changed.target.obstacles([schema], LOG)}
    former = Table(replace(copies, lists=before), schema)
    assert not former.replacing and former.applied.generation == 0, "nothing has happened to what readers see"


class ListLog(LogOf):
    """A log whose column of texts has lists."""

    @override
    def _value(self, column: Column, key: KeyOf) -> object:
        value = super()._value(column, key)
        if element_of(column.type) is None:
            return value
        return [] if value is None else [value, ""]


def test_batches_with_arrays_have_the_effect_of_the_rule_whichever_driver_is_killed(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    repeated, first = replace(copies, lists="Repeated"), first_schema(composite=False)
    listed = [c.model_copy(update={"type": "list<string>"}) if c.name == "t" else c for c in first.columns]
    schema = first.model_copy(update={"columns": tuple(listed)})
    table = Table(repeated, schema)
    log = ListLog(Random(3), tmp_path, schema, [(n,) for n in range(7)], table)
    target, killed = TargetState[KeyOf](), 0
    for _ in range(4):
        log.grow()
        part = cut(log.state, schema.table_id, table.applied, log.record)
        target = by_rule(log, target, part)
        if part is not None:
            seam, killed = ("apply.before-commit", "apply.after-commit")[killed % 2], killed + 1
            killed_at(seam, lambda: Table(repeated, schema).follow(log))
            table.restart()
        table.follow(log)
        equal(repeated.rows(schema), rows_of(log, target))
    assert killed > 1 and any(row["t" if "t" in row else "title"] for row in repeated.rows(schema))


def test_a_history_of_changes_has_no_repeated_columns(bigquery: BigQueryService) -> None:
    schema = table_schema([("id", "int64"), ("tags", "list<string>")], ["id"])
    changes = schema.model_copy(update={"history": "Changes"})
    bigquery.target("d", lists="Text").shown(changes)
    target = bigquery.target("d", lists="Repeated")
    target.shown(schema)
    with pytest.raises(TableStop, match="column 'tags' is a list"):
        target.shown(changes)
