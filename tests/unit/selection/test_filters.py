"""Row filters of the manifest: the text in the change log, and what is refused by table and column."""

import json

import pytest

from tailrace.changelog.history import added, is_kept, stored
from tailrace.changelog.records.tables import TableAdded
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import ReadRefused
from tailrace.selection.filters import changed, filter_columns, filtered
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.stops import reserved

ID = Column(name="id", id=1, source_type="int", type="int32", key=0)
REGION = Column(name="region", id=2, source_type="text", type="string")
CODE = Column(name="code", id=3, source_type="character(4)", type="string")
PRICE = Column(name="price", id=4, source_type="numeric", type="string")
MAIL = Column(name="mail", id=5, source_type="text", type="string", mask="Redact")
TENANT = Column(name="tenant", id=6, source_type="uuid", type="string")
SCHEMA = TableSchema(
    table_id=1, schema_name="s", table_name="t", version=0, columns=(ID, REGION, CODE, PRICE, MAIL, TENANT)
)  # fmt: skip
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


def options(where: str | None, **more: object) -> TableOptions:
    return TableOptions.model_validate({"match": "s.t", "where": where, **more})


def asked(where: str, **more: object) -> tuple[TableSchema, ReadRefused | None]:
    texts = ["region", "code", "mail", "tenant"]
    return filtered(SCHEMA, options(where, **more), texts=texts, padded={"code": 4}, uuids=["tenant"])


def test_the_change_log_has_the_canonical_text_and_nothing_where_there_is_none() -> None:
    schema, refused = asked("region='eu' AND 5 < id")
    assert refused is None and schema.where == '"region" = \'eu\' AND "id" > 5'
    assert filter_columns(schema) == {"id", "region"}
    text = TableAdded(table=schema, edge="1").model_dump_json()
    assert TableAdded.model_validate_json(text).table == schema
    assert filtered(SCHEMA, None, texts=()) == filtered(SCHEMA, options(None), texts=()) == (SCHEMA, None)
    assert "where" not in json.loads(TableAdded(table=SCHEMA, edge="1").model_dump_json())["table"]
    assert filter_columns(SCHEMA) == set()


def test_a_filter_is_part_of_what_rows_look_like() -> None:
    schema, _ = asked("id > 5")
    assert schema.form != SCHEMA.form and schema.form == asked("5 < id")[0].form
    assert changed(SCHEMA, schema) == 'options[].where of s.t is `"id" > 5`, and its copy has been made with unset'


def test_a_uuid_is_compared_with_the_text_that_the_target_has_of_it() -> None:
    schema, refused = asked(f"tenant IN ('{UUID}')")
    assert refused is None and schema.where == f"\"tenant\" IN ('{UUID}')"


@pytest.mark.parametrize(
    ("where", "more", "what", "fix"),
    [
        (f"tenant = '{UUID.upper()}'", {}, f"'{UUID.upper()}' is not how column 'tenant' has a uuid", f"'{UUID}'"),
        (f"tenant IN ('{{{UUID}}}')", {}, f"'{{{UUID}}}' is not how column 'tenant' has a uuid", f"'{UUID}'"),
        ("tenant <> 'x'", {}, "'x' is not how column 'tenant' has a uuid", "in lower case"),
        ("region LIKE 'e%'", {}, "region LIKE 'e%' is more than a row filter can be", "Write comparisons"),
        ("land = 'eu'", {}, "there is no copied column 'land'", "double quotes"),
        ("mail = 'x'", {}, "column 'mail' is masked", "that is not masked"),
        ("mail IS NULL", {}, "column 'mail' is masked", "that is not masked"),
        ("price = '1.0'", {}, "column 'price' is numeric, which is copied as text", "of another type"),
        (
            "region = 'eu'",
            {"asText": ["region"]},
            "column 'region' is text, which is copied as text",
            "of another type",
        ),
        ("id = 'one'", {}, "'one' does not fit column 'id', which is int32", "a whole number"),
        (
            "code IN ('ab  ', 'ab')",
            {},
            "column 'code' has 4 characters, blanks included, and 'ab' has 2",
            "4 characters",
        ),
    ],
)
def test_a_filter_that_cannot_be_used_names_table_text_and_fix(
    where: str, more: dict[str, object], what: str, fix: str
) -> None:
    schema, refused = asked(where, **more)
    assert schema.where is None and refused is not None
    assert refused.message == f"options[].where of s.t cannot be used: {what} (where: {where})" and fix in refused.fix


def test_a_history_is_part_of_the_schema_and_absent_where_there_is_none() -> None:
    schema, refused = filtered(SCHEMA, options(None, history="Changes"), texts=())
    assert refused is None and schema.history == "Changes" and schema.form != SCHEMA.form
    text = TableAdded(table=schema, edge="1").model_dump_json()
    assert TableAdded.model_validate_json(text).table == schema
    assert "history" not in json.loads(TableAdded(table=SCHEMA, edge="1").model_dump_json())["table"]
    assert changed(SCHEMA, schema) == "options[].history of s.t is Changes, and its copy has been made with Current"


def test_tables_of_which_no_history_can_be_kept_are_refused_by_name() -> None:
    keyless = SCHEMA.model_copy(update={"columns": (REGION,), "keyless": True})
    _, refused = filtered(keyless, options(None, history="Changes"), texts=())
    assert refused is not None and "of s.t cannot be Changes: the table has no key" in str(refused)
    for name in ("_commit_time", "_OP"):
        taken = Column(name=name, id=7, source_type="date", type="date")
        clashing = SCHEMA.model_copy(update={"columns": (ID, taken)})
        _, refused = filtered(clashing, options(None, history="Changes"), texts=())
        assert refused is not None and f"it has a column {name}" in str(refused)
        added = reserved(clashing.model_copy(update={"history": "Changes"}))
        assert added is not None and f"column {name!r} of s.t" in str(added), "also one that comes later"
        assert reserved(clashing) is None


@pytest.mark.parametrize("history", ["SoftDelete", "Versions", "Changes"])
def test_the_names_of_added_columns_begin_with_the_prefix(history: str) -> None:
    usual, _ = filtered(SCHEMA, options(None, history=history), texts=())
    schema, refused = filtered(SCHEMA, options(None, history=history, historyPrefix="Sys_"), texts=())
    names = [column.name for column in added(schema)]
    assert refused is None and names == [f"Sys_{column.name[1:]}" for column in added(usual)]
    assert [column.id for column in added(schema)] == [column.id for column in added(usual)]
    assert stored(schema).columns[-len(names) :] == added(schema)
    text = TableAdded(table=schema, edge="1").model_dump_json()
    assert TableAdded.model_validate_json(text).table == schema
    assert "history_prefix" not in TableAdded(table=usual, edge="1").model_dump_json()
    taken = Column(name=names[0].upper(), id=7, source_type="date", type="date")
    clashing = schema.model_copy(update={"columns": (ID, taken)})
    _, refused = filtered(clashing, options(None, history=history, historyPrefix="sys_"), texts=())
    assert refused is not None and f"it has a column {taken.name}" in str(refused)
    added_later = reserved(clashing)
    assert added_later is not None and f"column {taken.name!r} of s.t" in str(added_later)
    assert filtered(clashing, options(None, history=history), texts=())[1] is None


def test_another_prefix_is_another_history() -> None:
    usual, _ = filtered(SCHEMA, options(None, history="Changes"), texts=())
    schema, _ = filtered(SCHEMA, options(None, history="Changes", historyPrefix="sys_"), texts=())
    assert schema.form != usual.form and not is_kept(usual, schema) and is_kept(schema, schema)
    what = "options[].history of s.t is Changes (historyPrefix: sys_), and its copy has been made with Changes"
    assert changed(usual, schema) == what
    stop = first_stop(usual, schema)
    assert stop is not None and stop.message == what


def test_partitions_are_a_part_of_a_history_of_changes() -> None:
    usual, _ = filtered(SCHEMA, options(None, history="Changes", historyPrefix="sys_"), texts=())
    schema, refused = filtered(
        SCHEMA, options(None, history="Changes", historyPrefix="sys_", partitionBy="day"), texts=()
    )
    assert refused is None and not is_kept(usual, schema)
    assert [column.name for column in added(schema)] == [*(column.name for column in added(usual)), "sys_commit_day"]
    text = TableAdded(table=schema, edge="1").model_dump_json()
    assert TableAdded.model_validate_json(text).table == schema
    assert "partition_by" not in TableAdded(table=usual, edge="1").model_dump_json()
    assert changed(usual, schema) == (
        "options[].history of s.t is Changes (historyPrefix: sys_, partitionBy: day),"
        " and its copy has been made with Changes (historyPrefix: sys_)"
    )
    taken = Column(name="_Commit_Day", id=7, source_type="date", type="date")
    clashing = SCHEMA.model_copy(update={"columns": (ID, taken)})
    _, refused = filtered(clashing, options(None, history="Changes", partitionBy="day"), texts=())
    assert refused is not None and "it has a column _Commit_Day" in str(refused)
    assert filtered(clashing, options(None, history="Changes"), texts=())[1] is None


def test_a_prefix_is_of_a_history_and_of_letters_digits_and_underscores() -> None:
    for prefix in ("", "1a", "a-b", "a.b", 'a"', "ä_", "x" * 33, "a b", "a\n"):
        with pytest.raises(ValueError, match="historyPrefix"):
            options(None, history="Changes", historyPrefix=prefix)
    with pytest.raises(ValueError, match="historyPrefix names the columns that a history adds"):
        options(None, historyPrefix="sys_")


def test_deleted_rows_stay_of_a_table_with_a_key_and_with_a_filter_too() -> None:
    schema, refused = filtered(SCHEMA, options("id > 5", history="SoftDelete"), texts=())
    assert refused is None and (schema.history, schema.where) == ("SoftDelete", '"id" > 5')
    keyless = SCHEMA.model_copy(update={"columns": (REGION,), "keyless": True})
    _, refused = filtered(keyless, options(None, history="SoftDelete"), texts=())
    assert refused is not None and "of s.t cannot be SoftDelete: the table has no key" in str(refused)
    for name in ("_is_deleted", "_Deleted_At"):
        taken = Column(name=name, id=7, source_type="date", type="date")
        clashing = SCHEMA.model_copy(update={"columns": (ID, taken)})
        _, refused = filtered(clashing, options(None, history="SoftDelete"), texts=())
        assert refused is not None and f"it has a column {name}" in str(refused)
        assert filtered(clashing, options(None, history="Changes"), texts=())[1] is None


def test_a_history_of_changes_with_a_filter_is_refused_in_the_manifest() -> None:
    with pytest.raises(ValueError, match="where would leave some out"):
        options("id > 5", history="Changes")
    assert options("id > 5", history="Versions").where == "id > 5"


def test_a_column_with_the_name_of_one_that_versions_add_is_refused() -> None:
    taken = Column(name="_Valid_To", id=7, source_type="date", type="date")
    clashing = SCHEMA.model_copy(update={"columns": (ID, taken)})
    _, refused = filtered(clashing, options(None, history="Versions"), texts=())
    assert refused is not None and "of s.t cannot be Versions: it has a column _Valid_To" in str(refused)
