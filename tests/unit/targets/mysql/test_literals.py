"""What MySQL reads is what was written, however odd the value is, in statements that the server takes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.targets.mysql.literals import inserts, literal
from tailrace.targets.sql.session import UnfitValue

HEAD = b"INSERT INTO t VALUES "


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), "NULL"),
        ("it's \\ \0", pa.string(), "'it''s \\ \0'"),
        ("", pa.string(), "''"),
        (True, pa.bool_(), "true"),
        (-(2**63), pa.int64(), str(-(2**63))),
        (0.1, pa.float32(), "0.10000000149011612e0"),
        (1e-300, pa.float64(), "1e-300"),
        (-0.0, pa.float64(), "-0.0e0"),
        (Decimal("1E-9"), pa.decimal128(38, 9), "'0.000000001'"),
        (b"\x00\xff", pa.binary(), "x'00ff'"),
        (b"", pa.binary(), "x''"),
        (date(1, 1, 1), pa.date32(), "'0001-01-01'"),
        (datetime(9999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us"), "'9999-12-31T23:59:59.999999'"),
        (datetime(1, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), "'0001-01-01T00:00:00.000000'"),
        (["a'", None], pa.list_(pa.string()), "'[\"a''\", null]'"),
        ({"a": "ü"}, pa.struct([("a", pa.string())]), '\'{"a": "ü"}\''),
    ],
)
def test_each_value_has_one_spelling(value: Any, kind: pa.DataType, text: str) -> None:
    rows = pa.table({"a": pa.array([value], kind), "b": pa.array([1])})
    assert list(inserts(HEAD, rows, ["", ""], (1000, 1000))) == [HEAD + f"({text},1)".encode()]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), pa.float64()),
        (float("-inf"), pa.float32()),
        (-719529, pa.date32()),
        (2932897, pa.date32()),
        (-(2**62), pa.timestamp("us")),
        ("x" * 1000, pa.string()),
    ],
)
def test_a_value_that_the_server_does_not_have_is_named(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(UnfitValue, match=r"^odd:"):
        list(inserts(HEAD, pa.table({"id": [1], "odd": pa.array([value], kind)}), ["", ""], (1000, 1000)))


def test_statements_are_as_long_as_asked_for_unless_a_row_is_longer() -> None:
    texts = ["a", "b" * 60, "c", "d", "e" * 10, "f" * 200, "g"]
    found = [text.removeprefix(HEAD).decode() for text in inserts(HEAD, pa.table({"a": texts}), [""], (60, 1000))]
    assert [text.count("(") for text in found] == [1, 1, 3, 1, 1]
    assert ",".join(found) == ",".join(f"('{text}')" for text in texts)
    assert list(inserts(HEAD, pa.table({"a": pa.array([], pa.string())}), [""], (60, 1000))) == []


def test_values_of_our_own_statements_are_spelled_alike() -> None:
    assert [literal(value) for value in (None, True, 7, "o'", b"\xab")] == ["NULL", "True", "7", "'o'''", "x'ab'"]
