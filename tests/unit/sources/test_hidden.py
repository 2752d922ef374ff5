"""A table that is read again is emptied at once only where its new form hides something."""

from collections.abc import Callable

import pytest

from support.journals import table_schema
from support.states import table_log
from tailrace.changelog.records.terms import Column, RecordNumber, TableSchema
from tailrace.changelog.state import LogState, TableLog
from tailrace.sources.hidden import must_hide

BEFORE = table_schema(1, 2)
"""`id`, `c1` and `c2`, all in clear."""


def log(schema: TableSchema = BEFORE, **more: object) -> TableLog:
    return table_log(schema, 3, **{"read_record": 5, "applied_record": 8, **more})


def state(*tables: TableLog, forgotten: tuple[tuple[str, str], ...] = ()) -> LogState:
    return LogState(tables={table.table_id: table for table in tables}, forgotten_tables=forgotten)


def columns(schema: TableSchema, change: Callable[[Column], Column | None]) -> TableSchema:
    changed = (change(column) for column in schema.columns)
    return schema.model_copy(update={"columns": tuple(column for column in changed if column is not None)})


def masked(schema: TableSchema, mask: str | None, name: str = "c1") -> TableSchema:
    return columns(schema, lambda c: c.model_copy(update={"mask": mask}) if c.name == name else c)


def where(schema: TableSchema, text: str | None) -> TableSchema:
    return schema.model_copy(update={"where": text})


def hides(known: LogState, now: TableSchema, *left_out: str) -> bool:
    return must_hide(known, now, lambda column: column.name in left_out, bool(left_out))


def without(schema: TableSchema, name: str) -> TableSchema:
    return columns(schema, lambda c: None if c.name == name else c)


@pytest.mark.parametrize(
    ("before", "now", "left_out"),
    [
        (BEFORE, BEFORE, ()),
        (BEFORE, without(BEFORE, "c2"), ()),
        (BEFORE, columns(BEFORE, lambda c: c.model_copy(update={"id": c.id + 7, "type": "int32"})), ()),
        (masked(BEFORE, "Redact"), masked(BEFORE, "Redact"), ()),
        (masked(BEFORE, "Redact"), BEFORE, ()),
        (masked(BEFORE, "Hash 9f1c2a3b"), masked(BEFORE, "Hash 00000000"), ()),
        (where(BEFORE, "c1 = 'a'"), where(BEFORE, "c1 = 'a'"), ()),
        (where(BEFORE, "c1 = 'a'"), BEFORE, ()),
        (without(BEFORE, "c2"), without(BEFORE, "c2"), ("c2",)),
    ],
)
def test_what_hides_nothing_stays_to_be_seen(before: TableSchema, now: TableSchema, left_out: tuple[str, ...]) -> None:
    assert not hides(state(log(before)), now, *left_out)


@pytest.mark.parametrize(
    ("before", "now", "left_out"),
    [
        (BEFORE, masked(BEFORE, "Redact"), ()),
        (masked(BEFORE, "Hash 9f1c2a3b"), masked(BEFORE, "Redact"), ()),
        (masked(BEFORE, "Truncate 3"), masked(BEFORE, "Truncate 2"), ()),
        (BEFORE, columns(masked(BEFORE, "Redact"), lambda c: c.model_copy(update={"name": f"x{c.name}"})), ()),
        (BEFORE, columns(masked(BEFORE, "Redact"), lambda c: c.model_copy(update={"id": c.id + 7})), ()),
        (BEFORE, where(BEFORE, "c1 = 'a'"), ()),
        (where(BEFORE, "c1 = 'a'"), where(BEFORE, "c1 = 'b'"), ()),
        (BEFORE, without(BEFORE, "c2"), ("c2",)),
    ],
)
def test_what_is_hidden_from_now_on_is_hidden_at_once(
    before: TableSchema, now: TableSchema, left_out: tuple[str, ...]
) -> None:
    assert hides(state(log(before)), now, *left_out)
    another = log(before.model_copy(update={"table_id": 2}), removed=True)
    assert hides(state(another), now, *left_out), "the target of the name is another table's, which is gone"


def test_of_a_table_that_the_log_has_forgotten_nobody_knows_what_it_showed() -> None:
    forgotten = state(forgotten=(("public", "t1"),))
    assert not hides(forgotten, BEFORE) and not hides(state(), masked(BEFORE, "Redact"))
    for now, left_out in ((masked(BEFORE, "Redact"), ()), (where(BEFORE, "c1 = 'a'"), ()), (BEFORE, ("c9",))):
        assert hides(forgotten, now, *left_out)


def test_what_was_to_be_hidden_before_and_was_not_yet_is_hidden_now() -> None:
    """The masked form never came to the target, which still shows the one before."""
    now = masked(BEFORE, "Redact")
    assert hides(state(log(now, must_hide=True, applied_record=RecordNumber(0))), now)
    assert not hides(state(log(now, must_hide=True, applied_record=RecordNumber(3))), now)


@pytest.mark.parametrize("more", [{"read_record": RecordNumber(-1)}, {"applied_record": RecordNumber(4)}])
def test_readers_may_see_a_form_before_the_last_while_that_one_is_read(more: dict[str, object]) -> None:
    """The log knows the form of the copy that is being made; what readers see may have had more columns."""
    lacking, again = without(BEFORE, "c1"), masked(BEFORE, "Redact")
    assert hides(state(log(lacking, **more)), again) and hides(state(log(lacking, **more)), lacking, "c1")
    assert not hides(state(log(lacking)), again) and not hides(state(log(lacking, **more)), lacking)
    assert not hides(state(log(again, **more)), again)
