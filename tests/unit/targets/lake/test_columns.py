"""Which field of the target is which column of the source: kept, read back, and numbered as Iceberg numbers."""

from support.lake import table_schema
from tailrace.changelog.records.terms import Column
from tailrace.targets.lake.columns import Columns
from tailrace.targets.lake.iceberg.schema import PresentField, first_columns, present_fields, schema_json, unforeseen

PAIR = 'struct<"a":int32,"b, c":decimal(9,2)>'
SCHEMA = table_schema(
    [("n", "list<int32>"), ("id", "int64"), ("tags", "list<decimal(9,2)>"), ("v", "string"), ("p", PAIR)], ["id"]
)


def test_what_was_kept_is_read_back() -> None:
    for columns in (first_columns(SCHEMA), Columns(0, {}, {}).extended(SCHEMA, 7), Columns(3, {1: 1}, {1: "a"})):
        assert Columns.from_json(columns.to_json()) == columns
    former = '{"version": 3, "fields": {"1": [1, "a"], "4": [2, "b"]}}'
    assert Columns.from_json(former) == Columns(3, {1: 1, 4: 2}, {1: "a", 4: "b"})


def test_elements_have_field_ids_after_all_columns_of_a_new_table_and_after_their_list_when_it_is_added() -> None:
    new, added = first_columns(SCHEMA), Columns(0, {}, {}).extended(SCHEMA, 7)
    numbers = [column.id for column in SCHEMA.columns]
    assert [new.ids[n] for n in numbers] == [1, 2, 3, 4, 5] and new.highest == 9
    assert sorted(new.inner.values()) == [(6,), (7,), (8, 9)]
    assert [(added.ids[n], *added.inner.get(n, ())) for n in numbers] == [(8, 9), (10,), (11, 12), (13,), (14, 15, 16)]
    assert added.highest == 16 and Columns(0, {}, {}).highest == 0


def test_field_ids_that_were_not_foreseen_are_noticed() -> None:
    columns, present = first_columns(SCHEMA), present_fields(schema_json(SCHEMA))
    assert [field.type for field in present] == [
        "list<int>",
        "long",
        "list<decimal(9, 2)>",
        "string",
        PAIR.replace("int32", "int").replace(",2", ", 2"),
    ]
    assert unforeseen(columns, SCHEMA, present) is None
    moved = [PresentField(f.id, f.name, f.type, f.required, (9,) if f.name == "tags" else f.inner) for f in present]
    assert "column tags got field id (3, 9), foreseen was (3, 7)" in str(unforeseen(columns, SCHEMA, moved))
    more = SCHEMA.model_copy(
        update={"columns": (*SCHEMA.columns, Column(name="w", id=99, source_type="int4", type="int32"))}
    )
    assert "column w got field id None" in str(unforeseen(columns.extended(more, 9), more, present))
