from typing import Any

import pytest

from support.journals import table_schema
from support.resources import replicator
from support.states import table_log
from tailrace.changelog.records.terms import Seq
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
    assert starts_over(table(error), Replicator.model_validate(replicator(**spec)).spec) is expected


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
