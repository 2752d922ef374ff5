"""Literals of scripts, values of answers, files of load jobs."""

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.changelog.types import list_type
from tailrace.targets.bigquery import types, values
from tailrace.targets.sql import parquet_files
from tailrace.targets.sql.session import UnfitValue


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        ("it's \\ {}\n\0", "'it\\'s \\\\ {}\\n\\u0000'"),
        (b"\x00\xff", "FROM_BASE64('AP8=')"),
    ],
)
def test_a_value_as_a_literal(value: object, written: str) -> None:
    assert values.literal(value) == written


def test_an_answer_has_the_values_of_its_types() -> None:
    kinds = ("INTEGER", "FLOAT", "BOOLEAN", "NUMERIC", "BYTES", "DATE", "TIMESTAMP", "STRING")
    texts = ("7", "Infinity", "true", "1.50", "AP8=", "0001-01-01", "-1", "x")
    answer = {"rows": [{"f": [{"v": text} for text in texts]}, {"f": [{"v": None}] * len(texts)}]}
    row, nothing = values.rows_of(answer, [{"type": kind} for kind in kinds])
    moment = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert row == (7, float("inf"), True, Decimal("1.50"), b"\x00\xff", date(1, 1, 1), moment, "x")
    assert nothing == (None,) * len(texts)


def test_rows_are_divided_into_files_and_get_bigquerys_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 1)
    parts = [pa.table({"a b": [n], "d": [Decimal("1.5")]}) for n in range(3)]
    made = [
        pq.read_table(io.BytesIO(file)) for file in values.files(parts, ["a__x20_b", "d"], ["INT64", types.NUMERIC])
    ]
    assert [table.to_pylist() for table in made] == [[{"a__x20_b": n, "d": Decimal("1.5")}] for n in range(3)]
    assert made[0].schema.field("d").type == pa.decimal128(38, 9)
    assert list(values.files([parts[0].slice(0, 0)], ["a", "d"], ["INT64", types.NUMERIC])) == []


@pytest.mark.parametrize(
    ("last", "unfit", "kind", "name"),
    [
        (-62135596800000000, -62135596800000001, pa.timestamp("us"), "DATETIME"),
        (-62135596800000000, -62135596800000001, pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (-719162, -719163, pa.date32(), "DATE"),
        (2932896, 2932897, pa.date32(), "DATE"),
    ],
)
def test_a_year_that_bigquery_does_not_have_is_refused_with_its_column(
    last: int, unfit: int, kind: pa.DataType, name: str
) -> None:
    assert list(values.files([pa.table({"at": pa.array([last, None], kind)})], ["at"], [name]))
    with pytest.raises(UnfitValue, match="at: a date outside of the years 1 to 9999"):
        list(values.files([pa.table({"at": pa.array([last, unfit], kind)})], ["at"], [name]))


@pytest.mark.parametrize(
    ("element", "kind", "given", "wanted"),
    [
        (pa.string(), "STRING", [["a", ""], [], ["b"]], None),
        (pa.int32(), "INT64", [[1], [-2, 3]], None),
        (pa.decimal128(9, 2), types.NUMERIC, [[Decimal("1.50")]], None),
        (pa.decimal128(38, 0), types.TEXT, [[Decimal(7)]], [["7"]]),
        (pa.float32(), "FLOAT64", [[0.1]], [[0.10000000149011612]]),
    ],
)
def test_lists_are_written_as_repeated_columns(
    element: pa.DataType, kind: str, given: list[list[object]], wanted: list[list[object]] | None
) -> None:
    lists = pa.array([None, *given], list_type(element)).slice(1)
    (file,) = values.files([pa.table({"a": lists})], ["a"], [f"ARRAY<{kind}>"])
    assert pq.read_table(io.BytesIO(file)).column("a").to_pylist() == (wanted or given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([["a"], None], r"NULL in place of a list \(also an array of several dimensions"),
        ([["a", None]], "a list with NULL in it"),
    ],
)
def test_what_a_repeated_column_cannot_hold_is_refused_with_its_column(given: list[object], why: str) -> None:
    with pytest.raises(UnfitValue, match=f"tags: {why}") as refused:
        list(values.files([pa.table({"tags": pa.array(given, list_type(pa.string()))})], ["tags"], ["ARRAY<STRING>"]))
    fix = refused.value.of("s.t").fix
    assert "copy the column as text: remove it from options[].as" in fix and "tailrace resync" in fix


def test_rows_as_an_expression_that_stands_for_a_table() -> None:
    moment = datetime(1, 1, 1, 0, 0, 0, 1)
    given: list[tuple[str, str, object, pa.DataType, str]] = [
        ("a", "bigint", -(2**63), pa.int64(), "CAST('-9223372036854775808' AS INT64)"),
        ("b", "FLOAT64", -0.0, pa.float64(), "CAST('-0.0' AS FLOAT64)"),
        ("c", "FLOAT64", 0.1, pa.float32(), "CAST('0.10000000149011612' AS FLOAT64)"),
        ("d", types.NUMERIC, Decimal("1E+2"), pa.decimal128(9, 2), "'100.000000000'"),
        ("e", types.BIGNUMERIC, Decimal("1e-18"), pa.decimal128(38, 18), "'0.000000000000000001'"),
        ("f", "DATE", date(1, 1, 1), pa.date32(), "DATE '0001-01-01'"),
        ("g", "DATETIME", moment, pa.timestamp("us"), "DATETIME '0001-01-01 00:00:00.000001'"),
        ("h", "TIMESTAMP", moment, pa.timestamp("us", "UTC"), "TIMESTAMP '0001-01-01 00:00:00.000001+00:00'"),
        ("i", "TIME", time(1), pa.time64("us"), "TIME '01:00:00'"),
        ("j", "STRING", ["'"], pa.list_(pa.string()), "'[\"\\'\"]'"),
        ("m", "STRING", "a\0", pa.string(), "SAFE_CONVERT_BYTES_TO_STRING(FROM_BASE64('YQA='))"),
        ("k", "BYTES", b"\xff", pa.binary(), "FROM_BASE64('/w==')"),
        ("l", "BOOL", False, pa.bool_(), "FALSE"),
    ]
    rows = pa.table({name: pa.array([value, None], kind) for name, _, value, kind, _ in given})
    made = values.listed(rows, [name for name, *_ in given], [kind for _, kind, *_ in given])
    kinds = {name: types.api_type(kind) for name, kind, *_ in given}
    parsed = {"d": "PARSE_NUMERIC(`d`) AS `d`", "e": "PARSE_BIGNUMERIC(`e`) AS `e`"}
    struct = ", ".join(f"`{name}` {'STRING' if name in parsed else kind}" for name, kind in kinds.items())
    taken = ", ".join(parsed.get(name, f"`{name}`") for name in kinds)
    first, second = ", ".join(written for *_, written in given), ", ".join(["NULL"] * len(given))
    assert made == f"(SELECT {taken} FROM UNNEST(ARRAY<STRUCT<{struct}>>[STRUCT({first}), STRUCT({second})]))"
    with pytest.raises(UnfitValue, match="at: a date outside of the years 1 to 9999"):
        values.listed(pa.table({"at": pa.array([-719163], pa.date32())}), ["at"], ["DATE"])
