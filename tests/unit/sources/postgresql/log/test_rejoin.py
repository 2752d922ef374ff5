"""No masked column is copied in clear because names were exchanged."""

import pytest

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.sources.postgresql.log.rejoin import bares
from tailrace.sources.postgresql.model import PgTable


def schema(*columns: tuple[int, str, str | None]) -> TableSchema:
    made = (Column(name=name, id=id_, source_type="text", type="string", mask=mask) for id_, name, mask in columns)
    return TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=tuple(made))


@pytest.mark.parametrize(
    ("now", "bare"),
    [
        (((2, "v", "Redact"), (3, "w", None)), False),
        (((2, "v", None), (3, "w", None)), False),
        (((2, "x", "Redact"), (3, "w", None)), False),
        (((3, "w", None),), False),
        (((2, "w", None), (3, "v", "Redact")), True),
        (((2, "x", None), (4, "v", "Redact")), True),
    ],
)
def test_a_masked_column_under_another_name_is_not_copied_in_clear_by_itself(
    now: tuple[tuple[int, str, str | None], ...], bare: bool
) -> None:
    """Whoever takes the mask away from the name says so himself."""
    before = schema((2 + (1 << 16), "v", "Redact"), (3, "w", None))
    assert bares(before, PgTable(1, "s", "t", False, "me", (), (), schema(*now), None)) is bare
