"""The comparison of the proofs and of the demo: it must see every kind of difference."""

from decimal import Decimal

import pyarrow as pa
import pytest

from demo.compare import compare_by
from support.postgres import PostgresServer

ROWS = {"id": [1, 2], "v": [1.5, 0.0], "n": [Decimal("1.10"), None], "at": ["2024-01-01", "infinity"]}
SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.float64()), ("n", pa.decimal128(9, 2)), ("at", pa.string())])


@pytest.fixture
def source(postgres: PostgresServer) -> PostgresServer:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, v float8, n numeric(9,2), at date)")
    postgres.execute("INSERT INTO t VALUES (1, 1.5, 1.10, '2024-01-01'), (2, 0.0, NULL, 'infinity')")
    return postgres


def found(source: PostgresServer, target: pa.Table) -> list[str]:
    with source.connect() as connection:
        return compare_by(connection, ["public.t"], lambda schema, table: target)


def target(**columns: list[object]) -> pa.Table:
    return pa.table(ROWS | columns, schema=SCHEMA)


def test_what_is_equal_is_equal_whatever_the_order(source: PostgresServer) -> None:
    assert found(source, target()) == []
    assert found(source, target().take([1, 0]).select(["at", "id", "n", "v"])) == []


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ({"v": [1.5, -0.0]}, "key (2,) column v: source ('float', '0x0.0p+0'), target ('float', '-0x0.0p+0')"),
        ({"v": [float("nan"), 0.0]}, "key (1,) column v"),
        ({"n": [Decimal("1.10"), Decimal("0.00")]}, "key (2,) column n: source None"),
        ({"at": ["2024-01-01", None]}, "key (2,) column at: source 'infinity', target None"),
        ({"id": [1, 3]}, "key (2,) is missing in the target"),
    ],
)
def test_a_cell_that_differs_is_named(source: PostgresServer, columns: dict[str, list[object]], part: str) -> None:
    assert any(part in line for line in found(source, target(**columns)))


def test_rows_and_columns_that_are_too_few_or_too_many_are_named(source: PostgresServer) -> None:
    twice = pa.concat_tables([target(), target().slice(0, 1)])
    assert found(source, twice) == [
        "public.t: rows: 1 twice in the target",
        "public.t: key (1,) is in the target twice",
    ]
    more = pa.concat_tables([target(), target(id=[7, 8]).slice(0, 1)])
    assert found(source, more)[1] == "public.t: key (7,) is in the target and not in the source"
    assert found(source, target().slice(0, 0))[:2] == [
        "public.t: rows: 2 missing in the target",
        "public.t: key (1,) is missing in the target",
    ]
    assert "columns" in found(source, target().drop_columns(["n"]))[0]
