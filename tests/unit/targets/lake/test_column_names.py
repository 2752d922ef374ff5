import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lake import table_schema
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import SchemaChangeUnsupported
from tailrace.targets.lake import column_names
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.iceberg import schema as iceberg_schema

TYPES = ("int64", "list<int32>", 'struct<"a":int32,"b":date>')


def of(*columns: tuple[str, str] | str) -> TableSchema:
    given = [column if isinstance(column, tuple) else (column, "string") for column in columns]
    return table_schema(given, [given[0][0]])


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


@pytest.mark.parametrize(
    ("source", "delta", "iceberg"),
    [
        (of("id", "Id", "iD"), ["id", "Id_1", "iD_2"], ["id", "Id_1", "iD_2"]),
        (of("id", "ID", "Id_1"), ["id", "ID_2", "Id_1"], ["id", "ID_2", "Id_1"]),
        (of("id", "_Metadata", "_pos"), ["id", "_Metadata_1", "_pos"], ["id", "_Metadata", "_pos_1"]),
        (of("id", ("p", TYPES[2]), "P.A"), ["id", "p", "P.A_1"], ["id", "p", "P.A_1"]),
        (of("p.a", ("p", TYPES[2])), ["p.a", "p_1"], ["p.a", "p_1"]),
        (of("id", ("t", TYPES[1]), "t.element"), ["id", "t", "t.element"], ["id", "t", "t.element_1"]),
        (of("id", "v"), ["id", "v"], ["id", "v"]),
    ],
)
def test_what_readers_could_not_have_gets_a_number(source: TableSchema, delta: list[str], iceberg: list[str]) -> None:
    assert (names(delta_schema.shown(source)), names(iceberg_schema.shown(source))) == (delta, iceberg)


COLUMNS = st.tuples(
    st.sampled_from(["a", "A", "a_1", "A_1", "a_2", "a.a", "a_1.A", "a.element", "x"]), st.sampled_from(TYPES)
)


@given(st.lists(COLUMNS, min_size=1, max_size=8, unique_by=lambda column: column[0]), st.booleans())
def test_all_that_is_shown_can_be_told_apart(columns: list[tuple[str, str]], elements: bool) -> None:
    source = of(*columns)
    shown = column_names.shown(source, "Any", {"x"}, elements)
    found = [path for c in shown.columns for path in column_names.paths_of(c, c.name, elements)]
    assert len(set(found)) == len(found) and "x" not in found
    assert column_names.shown(shown, "Any", {"x"}, elements) == shown
    for before, after in zip(source.columns, shown.columns, strict=True):
        assert after.model_copy(update={"name": before.name}) == before
        assert after.name == before.name or after.name.startswith(f"{before.name}_")
    assert shown.columns[0].name == source.columns[0].name or source.columns[0].name == "x"


def test_fields_of_one_struct_that_differ_only_in_case_are_refused() -> None:
    twins = of("id", ("p", 'struct<"a":int32,"b":int32,"A":int32>'))
    with pytest.raises(SchemaChangeUnsupported, match="fields 'a' and 'A' of column 'p' differ only in case") as told:
        delta_schema.shown(twins)
    assert told.value.table == "public.t" and "options[].as" in told.value.fix
