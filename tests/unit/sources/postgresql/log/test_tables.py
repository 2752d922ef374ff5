"""Columns in the stream are known by their names alone; their places tell whether the names still mean the same."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from support import pgoutput_messages as pg
from support.catalog import catalog_table
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import NoKey, SchemaChangeUnsupported
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.tables import CapturedTables, CatalogNow, check_places

Names = dict[int, str]


def schema(names: Names, copied: Sequence[int]) -> TableSchema:
    columns = tuple(Column(name=names[n], id=n, source_type="text", type="string") for n in copied)
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=columns)


def change(chance: random.Random, now: Names, last: int) -> int:
    """One ALTER TABLE: add, drop, rename or exchange. Returns the highest number that was ever given."""
    kind = chance.choice(("add", "drop", "rename", "exchange", "exchange"))
    free = [name for name in "abcdefgh" if name not in now.values()]
    if kind == "add":
        now[last + 1] = chance.choice(free)
        return last + 1
    if kind == "drop" and len(now) > 1:
        del now[chance.choice(list(now))]
    elif kind == "rename":
        now[chance.choice(list(now))] = chance.choice(free)
    elif kind == "exchange" and len(now) > 1:
        one, other = chance.sample(list(now), 2)
        now[one], now[other] = now[other], now[one]
    return last


def refused(table: TableSchema, sent: Names, looked_at: Names, alive: set[int]) -> bool:
    try:
        check_places(table, [sent[n] for n in sorted(sent)], looked_at, alive)
    except SchemaChangeUnsupported:
        return True
    return False


def test_a_column_of_another_number_is_never_taken_for_a_copied_one_that_is_still_there() -> None:
    caught = 0
    for seed in range(4000):
        chance = random.Random(seed)
        looked_at = dict(enumerate(chance.sample("abcdefgh", chance.randint(2, 4)), 1))
        copied = sorted(chance.sample(list(looked_at), chance.randint(1, len(looked_at))))
        now, last = dict(looked_at), len(looked_at)
        for _ in range(chance.randint(1, 4)):
            last = change(chance, now, last)
        if not {looked_at[n] for n in copied} <= set(now.values()):
            continue  # a name is missing: refused before
        dropped = {name for n, name in looked_at.items() if n not in now}
        if any(now.get(n) in dropped for n in copied):
            continue  # not told apart, as docs/postgresql.md says: it needs a dropped column that is not copied
        by_name = {name: n for n, name in now.items()}
        wrong = any(by_name[looked_at[n]] != n for n in copied)
        # The catalog when it is asked: the names may have gone back, numbers that are there were there all the time.
        if wrong and set(copied) <= set(now):
            caught += 1
            assert refused(schema(looked_at, copied), now, looked_at, set(now)), (seed, looked_at, copied, now)
        # Where an earlier column is gone and another one renamed, it is refused for want of proof.
        renamed = any(now.get(n, name) != name for n, name in looked_at.items() if n not in copied)
        if not wrong and not renamed:
            assert not refused(schema(looked_at, copied), now, looked_at, set(now)), (seed, looked_at, copied, now)
    assert caught > 300


def test_a_log_without_names_is_judged_by_numbers() -> None:
    table = schema({1: "id", 2: "a"}, [1, 2])
    assert not refused(table, {1: "id", 2: "a", 3: "n"}, {}, set())
    assert refused(table, {1: "id", 2: "old", 3: "a"}, {}, set())
    assert refused(table, {1: "a", 2: "id"}, {}, set())


@pytest.mark.parametrize(
    ("looked_at", "sent", "stored", "exchanged"),
    [
        ({1: "id", 2: "x", 3: "b"}, ["id", "b"], {}, False),
        ({1: "id", 3: "b"}, ["id", "x", "b"], {}, False),
        ({1: "id", 3: "b"}, ["id", "g", "b"], {4: "g"}, True),
        ({1: "id", 3: "b"}, ["id", "x", "b", "g"], {4: "g"}, False),
        ({1: "id", 2: "x", 3: "b"}, ["id", "b", "x"], {}, True),
        ({1: "id", 2: "x", 3: "b"}, ["id", "x", "old", "b"], {}, True),
    ],
)
def test_another_list_of_columns_in_the_publication_is_no_exchange_of_names(
    looked_at: Names, sent: list[str], stored: Names, exchanged: bool
) -> None:
    table = schema({1: "id", 3: "b"}, [1, 3])
    columns = (table.columns[0].model_copy(update={"key": 0}), table.columns[1])
    table = table.model_copy(update={"schema_name": "public", "columns": columns})
    now = replace(catalog_table(table, ["id", "b"]), names={1: "id", 2: "x", 3: "b"}, stored=stored)
    captured = CapturedTables(CatalogNow(lambda oid, modifier: "text", lambda oid: now))
    captured.add(table, parts={"name in the log": {str(n): name for n, name in looked_at.items()}})
    relation = pgoutput.relation(pg.relation(1, sent, ["id"]))
    if exchanged:
        with pytest.raises(SchemaChangeUnsupported, match="exchanged"):
            captured.form_of(relation, 7, described=True)
    else:
        assert captured.form_of(relation, 7, described=True) is not None


def test_a_table_that_is_read_again_often_keeps_one_old_version_of_each_form() -> None:
    """`version_with` gives the newest that has a chunk's columns: no older one of the same is ever asked for."""
    first = schema({1: "a", 2: "b"}, [1, 2])
    grown = first.model_copy(update={"columns": first.columns[:1]})
    captured = CapturedTables(CatalogNow(lambda oid, modifier: "", lambda oid: None))
    captured.add(grown)
    for version in range(2, 1000):
        captured.evolve((grown if version < 500 else first).model_copy(update={"version": version}))
    assert [s.version for s in captured.known[1].history] == [499, 998]
    assert captured.version_with(1, tuple(c.name for c in grown.columns)) == 499
    assert captured.version_with(1, tuple(c.name for c in first.columns)) == 999


def test_a_table_that_has_lost_its_key_is_stopped_by_that_and_not_by_its_columns() -> None:
    """REPLICA IDENTITY NOTHING, under onSchemaChange: Evolve: all columns are where they were."""
    table = schema({1: "id", 2: "b"}, [1, 2]).model_copy(update={"schema_name": "public"})
    now = replace(catalog_table(table, ["id", "b"]), stop=NoKey("public.t", "public.t has no usable key"))
    tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", lambda _: now), evolves=lambda _: True)
    tables.add(table, parts={"attributes": {"count": "2"}, "name in the log": {"1": "id", "2": "b"}})
    with pytest.raises(NoKey, match="has no usable key"):
        tables.form_of(pgoutput.relation(pg.relation(1, ["id", "b"], ["id", "b"])), 7, described=True)
