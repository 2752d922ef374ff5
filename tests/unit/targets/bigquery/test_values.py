"""Literals of scripts, values of answers, files of load jobs."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
