from typing import Any

import pytest

from support.journals import table_schema
from support.resources import replicator
from support.states import table_log
from tailrace.changelog.history import retyped
from tailrace.changelog.records.terms import Column, Seq
from tailrace.changelog.state import TableLog
from tailrace.contract.resources import Replicator
from tailrace.errors import NoKey, SchemaChangeUnsupported, TableStop, ValueUnsupported, met_at
from tailrace.sources.stops import is_mended, not_awaited, stands_still, starts_over, stopped


def test_a_stopped_table_says_where_its_error_was_met_and_the_source_if_nobody_has() -> None:
    plain = stopped(7, Seq(3), SchemaChangeUnsupported("s.t", "m", "f"))
    assert (plain.error, plain.message, plain.fix, plain.where) == ("SchemaChangeUnsupported", "m", "f", "source")
    try:
        with met_at("storage"):
            raise ValueUnsupported("s.t", "m")
    except TableStop as error:
        assert stopped(7, Seq(3), error).where == "storage"


def table(error: TableStop | None) -> TableLog:
    return table_log(table_schema(7), stopped=None if error is None else stopped(7, Seq(0), error))


@pytest.mark.parametrize(
    ("spec", "error", "expected"),
    [
        ({}, SchemaChangeUnsupported("s.t", "m"), True),
        ({"onSchemaChange": "EvolveAdditive"}, SchemaChangeUnsupported("s.t", "m"), False),
        ({"onSchemaChange": "Stop"}, SchemaChangeUnsupported("s.t", "m"), False),
        ({"onSchemaChange": "Evolve"}, SchemaChangeUnsupported("s.t", "m"), True),
        ({"onSchemaChange": "Evolve"}, ValueUnsupported("s.t", "m"), False),
        ({"onSchemaChange": "Evolve"}, None, False),
        (
            {"onSchemaChange": "Stop", "options": [{"match": "*.*", "onSchemaChange": "Evolve"}]},
            SchemaChangeUnsupported("s.t", "m"),
            True,
        ),
        (
            {"onSchemaChange": "Stop", "options": [{"match": "*.other", "onSchemaChange": "Evolve"}]},
            SchemaChangeUnsupported("s.t", "m"),
            False,
        ),
        (
            {"onSchemaChange": "Evolve", "options": [{"match": "*.*", "onSchemaChange": "EvolveAdditive"}]},
            SchemaChangeUnsupported("s.t", "m"),
            False,
        ),
        ({"onSchemaChange": "Evolve", "options": [{"match": "*.*"}]}, SchemaChangeUnsupported("s.t", "m"), True),
    ],
)
def test_only_a_change_of_form_makes_a_table_start_over_where_that_is_asked_for(
    spec: dict[str, Any], error: TableStop | None, expected: bool
) -> None:
    stopped = table(error)
    assert starts_over(stopped, Replicator.model_validate(replicator(**spec)).spec, stopped.schema) is expected


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        (("character varying(20)", "string"), ("character varying(20)", "string"), True),
        (("character varying(20)", "string"), ("character varying(40)", "string"), True),
        (("character varying(20)", "string"), ("text", "string"), True),
        (("character varying(20)", "string"), ("character varying(5)", "string"), False),
        (("text", "string"), ("character varying(20)", "string"), False),
        (("timestamp without time zone", "timestamp"), ("timestamp(3) without time zone", "timestamp"), False),
        (("smallint", "int32"), ("integer", "int32"), True),
        (("integer", "int32"), ("smallint", "int32"), False),
        (("integer", "int32"), ("bigint", "int64"), False),
        (("int(11) unsigned", "int64"), ("int(4) unsigned", "int64"), True),
        (("mediumint", "int32"), ("mediumint unsigned", "int32"), False),
        (("enum('a','b')", "string"), ("enum('a','b','c')", "string"), True),
        (("enum('a','b')", "string"), ("enum('a','c')", "string"), False),
        (("longtext", "string"), ("text", "string"), False),
        (("datetime", "timestamp"), ("datetime(6)", "timestamp"), True),
        (("datetime(6)", "timestamp"), ("datetime", "timestamp"), False),
        (("time(3)", "string"), ("time(2)", "string"), False),
    ],
)
def test_a_type_that_may_cost_values_of_a_history_is_known(
    before: tuple[str, str], now: tuple[str, str], kept: bool
) -> None:
    one, other = (Column(name="v", id=9, source_type=kind[0], type=kind[1]) for kind in (before, now))
    assert retyped(one, other) is not kept


def test_what_would_end_a_history_is_for_a_resync_to_decide() -> None:
    error, spec = SchemaChangeUnsupported("s.t", "m"), Replicator.model_validate(replicator()).spec
    known = table(error)
    wider = Column(name="v", id=9, source_type="bigint", type="int64")
    for history in (None, "SoftDelete", "Changes", "Versions"):
        was = known.schema.model_copy(update={"history": history})
        stopped = known.model_copy(update={"schemas": (known.schemas[-1].model_copy(update={"table": was}),)})
        for columns in (was.columns, was.columns[:-1], (*was.columns, wider)):
            now = was.model_copy(update={"columns": columns})
            assert starts_over(stopped, spec, now) is (history is None)
            # The user's own choice ends the history.
            assert starts_over(stopped, spec, now.model_copy(update={"history": None if history else "Changes"}))


@pytest.mark.parametrize(
    ("error", "now", "mended"),
    [
        (NoKey("s.t", "m"), None, True),
        (NoKey("s.t", "m"), NoKey("s.t", "m"), False),
        (SchemaChangeUnsupported("s.t", "m"), None, False),
        (None, None, False),
    ],
)
def test_only_a_reason_that_the_catalog_shows_can_be_gone(
    error: TableStop | None, now: TableStop | None, mended: bool
) -> None:
    assert is_mended(table(error), now) is mended


@pytest.mark.parametrize(("spec", "still"), [({}, False), ({"onSchemaChange": "Stop"}, True),
    ({"onSchemaChange": "Stop", "options": [{"match": "*.*", "onSchemaChange": "Evolve"}]}, False)])  # fmt: skip
def test_a_table_stands_still_where_that_is_asked_for(spec: dict[str, Any], still: bool) -> None:
    assert stands_still(table_schema(7), Replicator.model_validate(replicator(**spec)).spec) is still
    told = not_awaited(table_schema(7), ["c", "d"])
    assert "new column 'c', 'd', and onSchemaChange is Stop" in told.message and "Evolve" in told.fix
    kept = table_schema(7).model_copy(update={"history": "Versions"})
    assert "Evolve" not in not_awaited(kept, ["c"]).fix, "it would not start over"
