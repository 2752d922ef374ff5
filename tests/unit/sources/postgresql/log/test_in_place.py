"""Dropped and renamed columns are followed where their numbers are proven, and nowhere else."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from support import pgoutput_messages as pg
from support.catalog import catalog_table
from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.contract.tables import Mask
from tailrace.errors import ReadRefused, SchemaChangeUnsupported
from tailrace.sources.log.decode import Evolved
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.in_place import as_sent
from tailrace.sources.postgresql.log.tables import CapturedTables, CatalogNow, ColumnChanges, compare
from tailrace.sources.postgresql.model import PgTable

Names = dict[int, str]
FIRST = {1: "id", 2: "a", 3: "b"}


def schema(names: Mapping[int, str], version: int = 1) -> TableSchema:
    columns = tuple(
        Column(name=name, id=number, source_type="text", type="string", key=0 if number == 1 else None)
        for number, name in names.items()
    )
    return TableSchema(table_id=1, schema_name="public", table_name="t", version=version, columns=columns)


def catalog(names: Names, attributes: int = 3, **changes: Any) -> PgTable:
    now = catalog_table(schema(names), list(names.values()))
    return replace(now, names=names, numbers=frozenset(names), attributes=attributes, **changes)


def captured(now: PgTable, names: Names = FIRST, evolves: bool = True, ended: bool = True) -> CapturedTables:
    catalog = CatalogNow(lambda oid, modifier: "text", lambda oid: now, lambda xid, oid: ended)
    tables = CapturedTables(catalog, (), lambda _: evolves)
    tables.add(schema(names), parts=parts_of(names))
    return tables


def parts_of(names: Names) -> Parts:
    return {"name in the log": {str(n): name for n, name in names.items()}, "attributes": {"count": "3"}}


def follow(tables: CapturedTables, *sent: str) -> Names:
    """The columns under which rows of this message go into the log."""
    found = tables.form_of(pgoutput.relation(pg.relation(1, list(sent), ["id"])), 7, described=True)
    form = found.form if isinstance(found, Evolved) else found
    assert form is not None and not (isinstance(found, Evolved) and found.reread)
    assert [sent[place] for place in form.wire] == [c.name for c in form.schema.columns]
    return {c.id: c.name for c in form.schema.columns}


def changed(chance: random.Random, now: Names, last: int) -> int:
    """One ALTER TABLE. Returns the highest number that was ever given."""
    kind, free = chance.choice(("add", "drop", "rename", "swap")), [n for n in "abcdefgh" if n not in now.values()]
    if kind == "add":
        now[last + 1] = chance.choice(free)
        return last + 1
    if kind == "drop" and len(now) > 2:
        del now[chance.choice(list(now)[1:])]
    elif kind == "rename":
        now[chance.choice(list(now)[1:])] = chance.choice(free)
    elif kind == "swap" and len(now) > 2:
        one, other = chance.sample(list(now)[1:], 2)
        now[one], now[other] = now[other], now[one]
    return last


def test_no_message_is_ever_proven_to_have_other_columns_than_it_has() -> None:
    """Few names and many changes, before the message and between it and the question to the catalog."""
    proven = 0
    for seed in range(20_000):
        chance = random.Random(seed)
        looked_at = dict(enumerate(["id", *chance.sample("abc", chance.randint(1, 3))], 1))
        now, last = dict(looked_at), len(looked_at)
        for _ in range(chance.randint(0, 2)):
            last = changed(chance, now, last)
        sent = dict(sorted(now.items()))
        for _ in range(chance.randint(0, 2)):
            last = changed(chance, now, last)
        there = catalog(dict(sorted(now.items())), last)
        found = as_sent(list(sent.values()), looked_at, len(looked_at), there)
        if found is not None:
            proven += 1
            assert found == {n: name for n, name in sent.items() if n in looked_at}, (seed, looked_at, sent, now)
    assert proven > 10_000


@pytest.mark.parametrize(
    ("sent", "now", "expected"),
    [
        (["id", "a"], {1: "id", 2: "a"}, {1: "id", 2: "a"}),
        (["id", "b"], {1: "id", 3: "b"}, {1: "id", 3: "b"}),
        (["id", "c", "b"], {1: "id", 2: "c", 3: "b"}, {1: "id", 2: "c", 3: "b"}),
        (["id", "b", "a"], {1: "id", 2: "b", 3: "a"}, {1: "id", 2: "b", 3: "a"}),
        (["id", "b"], {1: "id", 2: "b"}, {1: "id", 2: "b"}),
        (["id", "c", "b"], {1: "id", 2: "d", 3: "b"}, {1: "id", 2: "c", 3: "b"}),
        (["id", "c", "b"], {1: "id", 3: "b"}, {1: "id", 2: "c", 3: "b"}),
    ],
    ids=["drop", "drop before", "rename", "swap", "name of the dropped", "renamed again since", "dropped since"],
)
def test_what_a_message_means_is_followed_from_its_row_on(sent: list[str], now: Names, expected: Names) -> None:
    assert follow(captured(catalog(now)), *sent) == expected
    with pytest.raises(SchemaChangeUnsupported):
        captured(catalog(now), evolves=False).form_of(
            pgoutput.relation(pg.relation(1, sent, ["id"])), 7, described=True
        )


def test_several_changes_one_after_the_other_are_several_versions() -> None:
    tables = captured(catalog({1: "id", 2: "d"}))
    assert follow(tables, "id", "c", "b") == {1: "id", 2: "c", 3: "b"}
    assert follow(tables, "id", "d", "b") == {1: "id", 2: "d", 3: "b"}
    assert follow(tables, "id", "d") == {1: "id", 2: "d"}
    assert tables.known[1].schema.version == 4
    assert [s.version for s in tables.known[1].history] == [1, 2, 3]


def test_a_column_that_comes_behind_a_renamed_one_is_added() -> None:
    now = catalog({1: "id", 2: "c", 3: "b", 4: "a"}, 4)
    assert follow(captured(now), "id", "c", "b", "a") == {1: "id", 2: "c", 3: "b", 4: "a"}


@pytest.mark.parametrize(
    ("sent", "now", "attributes"),
    [
        (["id", "a", "b"], {1: "id", 2: "a", 4: "b"}, 4),
        (["id", "a", "c"], {1: "id", 2: "a", 4: "c"}, 4),
        (["key", "a", "b"], {1: "key", 2: "a", 3: "b"}, 3),
        (["id", "c"], {1: "id"}, 3),
    ],
    ids=["added again", "another instead", "key", "one of two"],
)
def test_what_is_not_proven_stops_the_table_at_its_row_or_at_the_look(
    sent: list[str], now: Names, attributes: int
) -> None:
    tables, there = captured(catalog(now, attributes)), catalog(now, attributes)
    with pytest.raises(SchemaChangeUnsupported):
        tables.form_of(pgoutput.relation(pg.relation(1, sent, ["id"])), 7, described=True)
    if sent != ["id", "c"]:  # the catalog shows that both have gone
        assert isinstance(tables.compare(1, there).stop, SchemaChangeUnsupported)


def test_a_look_takes_over_drops_renames_and_additions_at_once() -> None:
    now = catalog({1: "id", 2: "c", 3: "a", 4: "b"}, 4)
    found = compare(schema(FIRST), now, attributes=3, in_place=FIRST)
    assert found.evolved is not None and not found.reread
    assert {c.id: c.name for c in found.evolved.columns} == now.names
    dropped = compare(schema(FIRST), catalog({1: "id", 3: "a"}), attributes=3, in_place=FIRST)
    assert dropped.evolved is not None and [c.id for c in dropped.evolved.columns] == [1, 3]
    assert compare(schema(now.names), now, attributes=4, in_place=FIRST) == ColumnChanges()


INT, TEXT, LONG = ("integer", "int32"), ("text", "string"), ("character varying(9)", "string")


def as_types(now: PgTable, types: Mapping[int, tuple[str, str]]) -> PgTable:
    """With these source types and logical types, by number; text otherwise."""
    of = {c.id: dict(zip(("source_type", "type"), types.get(c.id, TEXT), strict=True)) for c in now.schema.columns}
    columns = tuple(c.model_copy(update=of[c.id]) for c in now.schema.columns)
    there = tuple(replace(c, source_type=of[c.attnum]["source_type"]) for c in now.columns)
    return replace(now, columns=there, schema=now.schema.model_copy(update={"columns": columns}))


def with_messages(now: PgTable, sent: list[str], names: Names = FIRST) -> CapturedTables:
    """`sent`: the types in the log, in the order of the columns."""
    oids = dict(enumerate(sent))
    tables = CapturedTables(CatalogNow(lambda oid, modifier: oids[oid], lambda oid: now), (), lambda _: True)
    tables.add(schema(names), parts=parts_of(names))
    return tables


def message(*names: str) -> pgoutput.Relation:
    """Its types are numbered in the order of the columns."""
    found = pgoutput.relation(pg.relation(1, names, ["id"]))
    columns = (replace(column, type_oid=place) for place, column in enumerate(found.columns))
    return replace(found, columns=tuple(columns))


def test_a_column_of_another_type_is_another_column_and_its_rows_are_read_again() -> None:
    now = as_types(catalog({1: "id", 2: "a", 3: "c"}), {2: INT})
    look = compare(schema(FIRST), now, attributes=3, in_place=FIRST)
    assert look.evolved is not None and look.reread and not look.older
    tables = with_messages(now, ["text", "integer", "text"])
    found = tables.form_of(message("id", "a", "c"), 7, described=True)
    assert isinstance(found, Evolved) and found.reread and found.form.schema == look.evolved
    ids = {c.name: (c.id % 65536, c.type) for c in look.evolved.columns}
    assert ids == {"id": (1, "string"), "a": (2, "int32"), "c": (3, "string")}
    assert look.evolved.columns[1].id != 2 and [c.id for c in look.evolved.columns][::2] == [1, 3]
    assert now.shows(look.evolved) and not now.shows(schema(FIRST))
    # From here on it is known by its number as any other, and a third type is a third column.
    assert tables.compare(1, now) == ColumnChanges()
    assert tables.form_of(message("id", "a", "c"), 7, described=True) == found.form
    again = compare(look.evolved, as_types(now, {}), attributes=3, in_place=now.names)
    assert again.evolved is not None and len({2, look.evolved.columns[1].id, again.evolved.columns[1].id}) == 3
    dropped = compare(look.evolved, catalog({1: "id", 3: "c"}), attributes=3, in_place=now.names)
    assert dropped.evolved is not None and not dropped.reread and [c.id for c in dropped.evolved.columns] == [1, 3]


def test_a_type_whose_values_are_the_same_leaves_the_column_as_it_is() -> None:
    """Whether the rows were rewritten, the file says."""
    now = as_types(catalog(FIRST), {3: LONG})
    look = compare(schema(FIRST), now, attributes=3, in_place=FIRST)
    found = with_messages(now, ["text", "text", LONG[0]]).form_of(message("id", "a", "b"), 7, described=True)
    assert look.evolved is not None and isinstance(found, Evolved) and found.form.schema == look.evolved
    assert not look.reread and not found.reread
    assert look.evolved.form == schema(FIRST).form and look.evolved.columns[2].source_type == LONG[0]


@pytest.mark.parametrize(
    ("types", "sent"),
    [({1: INT}, ["integer", "text", "text"]), ({2: LONG}, ["text", "integer", "text"]), ({}, ["text", "date", "text"])],
    ids=["key", "changed again since", "changed back since"],
)
def test_a_type_that_the_catalog_does_not_have_or_that_is_of_the_key_is_not_followed(
    types: dict[int, tuple[str, str]], sent: list[str]
) -> None:
    now = as_types(catalog(FIRST), types)
    with pytest.raises(SchemaChangeUnsupported, match="changed its type from text to"):
        with_messages(now, sent).form_of(message("id", "a", "b"), 7, described=True)
    if 1 in types:
        assert isinstance(compare(schema(FIRST), now, attributes=3, in_place=FIRST).stop, SchemaChangeUnsupported)


@pytest.mark.parametrize("evolves", [True, False])
def test_a_new_column_whose_type_the_catalog_does_not_have_any_more_is_read_again_instead_of_decoded(
    evolves: bool,
) -> None:
    now = as_types(catalog({**FIRST, 4: "c", 5: "d"}, 5), {4: INT})
    tables = with_messages(now, ["text"] * 5)
    tables._evolves = lambda _: evolves
    found = tables.form_of(message("id", "a", "b", "c", "d"), 7, described=True)
    assert isinstance(found, Evolved) and found.reread
    assert [c.name for c in found.form.schema.columns] == ["id", "a", "b", "d"]
    later = message("id", "a", "b", "c", "d")
    columns = (replace(c, type_oid=5) if c.name == "c" else c for c in later.columns)
    tables._catalog = CatalogNow(lambda oid, modifier: "integer", lambda oid: now)
    found = tables.form_of(replace(later, columns=tuple(columns)), 7, described=True)
    assert isinstance(found, Evolved)
    assert {c.name: c.type for c in found.form.schema.columns}["c"] == "int32"


def test_types_stop_the_table_where_it_may_not_evolve() -> None:
    now = as_types(catalog(FIRST), {2: LONG})
    assert isinstance(compare(schema(FIRST), now, attributes=3).stop, SchemaChangeUnsupported)


def test_a_column_that_is_copied_otherwise_is_not_followed() -> None:
    """By the options: the rows that the log still has were made by the former ones."""
    now = as_types(catalog(FIRST), {2: ("text", "int32")})
    assert isinstance(compare(schema(FIRST), now, attributes=3, in_place=FIRST).stop, SchemaChangeUnsupported)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"columns": ["a"]}, ["id", "b", "a"]),
        ({"as_text": ["a"]}, ["id", "b", "a"]),
        ({"as": {"a": "double"}}, ["id", "b", "a"]),
    ],
)
def test_a_name_that_the_options_give_to_another_column_is_not_followed(
    options: dict[str, Any], sent: list[str]
) -> None:
    now = catalog({1: "id", 2: "b", 3: "a"}, options=TableOptions.model_validate({"match": "public.t", **options}))
    tables = captured(now)
    with pytest.raises(SchemaChangeUnsupported):
        tables.form_of(pgoutput.relation(pg.relation(1, sent, ["id"])), 7, described=True)
    stop = ReadRefused("public.t", "options name a column that there is not")
    assert captured(catalog({1: "id", 2: "c"}, stop=stop)).compare(1, catalog({1: "id"}, stop=stop)).stop == stop


def test_a_publication_that_leaves_columns_out_proves_nothing() -> None:
    now = catalog({1: "id", 2: "c", 3: "b"})
    tables = captured(now, {1: "id", 3: "b"})
    with pytest.raises(SchemaChangeUnsupported):
        tables.form_of(pgoutput.relation(pg.relation(1, ["id", "c"], ["id"])), 7, described=True)


def test_the_same_message_is_judged_again_where_the_server_describes_the_table_again() -> None:
    """Another column of the same name has taken the place of one that went; without an ALTER nothing is asked."""
    now = catalog(FIRST)
    tables = captured(now)
    message = pgoutput.relation(pg.relation(1, list(FIRST.values()), ["id"]))
    assert not isinstance(tables.form_of(message, 7, described=True), Evolved)
    found = CatalogNow(lambda oid, modifier: "text", lambda oid: catalog({1: "id", 2: "a", 4: "b"}, 4))
    tables._catalog = found
    assert tables.form_of(message, 8, described=False) is not None
    with pytest.raises(SchemaChangeUnsupported, match="nothing proves"):
        tables.form_of(message, 8, described=True)


@pytest.mark.parametrize("sent", [["id", "c", "b"], ["id", "b"], ["id", "a", "b"]])
def test_a_catalog_that_does_not_show_yet_what_the_log_has_proves_nothing(sent: list[str]) -> None:
    """Commits that wait for a standby are in the log before they are seen; whoever asks would see the old columns."""
    tables = captured(catalog(FIRST), ended=False)
    with pytest.raises(SchemaChangeUnsupported):
        tables.form_of(pgoutput.relation(pg.relation(1, sent, ["id"])), 7, described=True)


def test_a_new_column_that_the_catalog_does_not_show_yet_has_its_rows_read_again() -> None:
    for evolves, ended in ((False, False), (False, True)):
        tables = captured(catalog(FIRST), evolves=evolves, ended=ended)
        found = tables.form_of(pgoutput.relation(pg.relation(1, ["id", "a", "b", "c"], ["id"])), 7, described=True)
        assert (isinstance(found, Evolved) and found.reread) is not ended


@pytest.mark.parametrize("evolves", [False, True])
@pytest.mark.parametrize(
    ("sent", "now", "attributes", "read_again"),
    [
        (["c"], {4: "c"}, 4, False),
        (["c"], {4: "c", 5: "d"}, 5, False),
        (["c"], {5: "c"}, 5, True),
        (["c", "d"], {4: "d", 5: "c"}, 5, True),
        (["c"], {4: "d"}, 4, True),
        (["c"], {}, 4, False),
    ],
    ids=["there", "one more since", "dropped and added since", "exchanged since", "renamed since", "dropped since"],
)
def test_columns_that_came_and_went_or_were_renamed_since_have_their_rows_read_again(
    sent: list[str], now: Names, attributes: int, read_again: bool, evolves: bool
) -> None:
    tables = captured(catalog({**FIRST, **now}, attributes), evolves=evolves)
    message = pgoutput.relation(pg.relation(1, [*FIRST.values(), *sent], ["id"]))
    found = tables.form_of(message, 7, described=True)
    assert (isinstance(found, Evolved) and found.reread) is read_again


def test_a_column_that_came_with_a_message_is_known_from_then_on_and_after_a_restart() -> None:
    grown = {**FIRST, 4: "c"}
    tables = captured(catalog(grown, 4))
    assert follow(tables, *grown.values()) == grown
    later = {1: "id", 2: "a", 3: "b", 4: "d", 5: "c"}
    again = captured(catalog(later, 5))
    again.add(schema(grown, 2), parts=parts_of(FIRST))
    for known in (tables, again):
        known._catalog = CatalogNow(lambda oid, modifier: "text", lambda oid: catalog(later, 5))
        assert follow(known, "id", "a", "b", "d", "c") == later
        assert follow(known, "id", "a", "b", "d", "c") == later
        assert known.known[1].schema.version == 3


def test_a_mask_goes_with_its_name_and_is_never_lost_by_a_rename() -> None:
    mask = Mask(column="a", method="Redact")
    for number, names, sent in ((2, {1: "id", 2: "c", 3: "b"}, "c b"), (2, {1: "id", 2: "b", 3: "a"}, "b a")):
        now = catalog(dict(names), options=TableOptions(match="public.t", mask=(mask,)))
        tables = captured(now)
        columns = (c.model_copy(update={"mask": "Redact"}) if c.id == number else c for c in schema(FIRST).columns)
        masked = schema(FIRST).model_copy(update={"columns": tuple(columns)})
        tables.add(masked, parts=parts_of(FIRST))
        with pytest.raises(SchemaChangeUnsupported):
            tables.form_of(pgoutput.relation(pg.relation(1, ["id", *sent.split()], ["id"])), 7, described=True)
        tables.add(masked, parts=parts_of(FIRST))
        assert tables.compare(1, now).stop is not None


@pytest.mark.parametrize("evolves", [True, False])
def test_a_column_of_the_row_filter_is_not_followed_in_place(evolves: bool) -> None:
    where = {"where": "\"a\" = 'eu'"}
    for names, sent in (
        ({1: "id", 2: "c", 3: "b"}, "c b"),
        ({1: "id", 2: "b", 3: "a"}, "b a"),
        ({1: "id", 3: "b"}, "b"),
    ):
        now = catalog(dict(names))
        now = replace(now, schema=now.schema.model_copy(update=where))
        for asked in ("message", "look"):
            tables = captured(now, evolves=evolves)
            tables.add(schema(FIRST).model_copy(update=where), parts=parts_of(FIRST))
            if asked == "look":
                assert isinstance(tables.compare(1, now).stop, SchemaChangeUnsupported)
                continue
            with pytest.raises(SchemaChangeUnsupported):
                tables.form_of(pgoutput.relation(pg.relation(1, ["id", *sent.split()], ["id"])), 7, described=True)


@pytest.mark.parametrize("evolves", [True, False])
def test_another_row_filter_stops_the_table_and_an_equal_one_does_not(evolves: bool) -> None:
    now = catalog(FIRST)
    filtered = replace(now, schema=now.schema.model_copy(update={"where": "\"a\" = 'eu'"}))
    for before, after in ((now, filtered), (filtered, now)):
        tables = captured(after, evolves=evolves)
        tables.add(before.schema.model_copy(update={"version": 1}), parts=parts_of(FIRST))
        stop = tables.compare(1, after).stop
        assert isinstance(stop, SchemaChangeUnsupported) and "options[].where of public.t is " in stop.message
        assert not after.shows(before.schema) and after.shows(after.schema)
    tables.add(now.schema.model_copy(update={"version": 1}), parts=parts_of(FIRST))
    assert tables.compare(1, now) == ColumnChanges()


def test_a_new_column_keeps_the_row_filter() -> None:
    grown, where = {**FIRST, 4: "c"}, "\"a\" = 'eu'"
    now = catalog(grown, 4)
    now = replace(now, schema=now.schema.model_copy(update={"where": where}))
    tables = captured(now, evolves=False)
    tables.add(schema(FIRST).model_copy(update={"where": where}), parts=parts_of(FIRST))
    evolved = tables.compare(1, now).evolved
    assert evolved is not None and (evolved.version, evolved.where, len(evolved.columns)) == (2, where, 4)
