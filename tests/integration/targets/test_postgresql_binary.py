"""Rows that PostgreSQL gets in the binary format of COPY are those that it gets as texts."""

from contextlib import closing
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from support.postgres import PostgresServer
from tailrace.changelog.types import arrow_type
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.errors import Retry, privacy
from tailrace.targets.postgresql import binary, texts
from tailrace.targets.postgresql.session import PgTargetSession
from tailrace.targets.sql.session import UnfitValue

LAST_SECOND = 253_402_300_799_000_000
"""Of the year 9999, in microseconds."""
NAN, INFINITY = float("nan"), float("inf")
CASES: dict[str, tuple[str, list[Any]]] = {
    "smallint": ("int32", [0, -1, 32767, -32768]),
    "integer": ("int32", [0, -1, 2**31 - 1, -(2**31)]),
    "bigint": ("int64", [0, -1, 2**63 - 1, -(2**63)]),
    "real": ("float32", [0.0, -0.0, 1.5, 3.4028234663852886e38, NAN, -INFINITY]),
    "double precision": ("float64", [0.1, -0.0, 5e-324, 1.7976931348623157e308, NAN, INFINITY]),
    "boolean": ("bool", [True, False]),
    "date": ("date", [0, -719_162, 2_932_896, -719_529, 2_932_897]),
    "time without time zone": ("time", [0, 1, 86_399_999_999]),
    "time(3) without time zone": ("time", [0, 1_000, 86_399_999_000]),
    "timestamp without time zone": ("timestamp", [0, -1, LAST_SECOND + 999_999, -62_135_596_800_000_001]),
    "timestamp(3) without time zone": ("timestamp", [0, 1_000, -2_000]),
    "timestamp with time zone": ("timestamptz", [1_790_000_000_000_004, -1, LAST_SECOND + 1_000_000]),
    "numeric(12,2)": ("decimal(12,2)", [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999999.99")]),
    "numeric(4,4)": ("decimal(4,4)", [Decimal("0.0001"), Decimal("-0.9999"), Decimal("0.1000")]),
    "numeric(9,5)": ("decimal(9,5)", [Decimal("0.00001"), Decimal("1234.56789"), Decimal("-1000.10000")]),
    "numeric(18,0)": ("decimal(18,0)", [Decimal(10**18 - 1), Decimal(-10000), Decimal(0)]),
    "numeric(38,0)": ("decimal(38,0)", [Decimal("9" * 38), Decimal(f"-{'9' * 38}"), Decimal(-(2**63)), Decimal(7)]),
    "numeric(38,37)": ("decimal(38,37)", [Decimal(f"9.{'9' * 37}"), Decimal(f"-0.{'0' * 36}1")]),
    "numeric": ("decimal(20,6)", [Decimal("1.200000"), Decimal("-10000.000001")]),
    "text": ("string", ["", "a\tb\n\\N\r", "ä€😀", "x" * 5000]),
    "character varying(4)": ("string", ["", "ab  ", "€€€€"]),
    "character(4)": ("string", ["", "ab", "abcd"]),
    "uuid": ("string", [str(UUID(int=0)), str(UUID(int=2**128 - 1))]),
    "json": ("string", ['{"a": 1,  "b":null}', "[]"]),
    "jsonb": ("string", ['{"b": 1, "a": "x"}', "null"]),
    "bytea": ("binary", [b"", b"\0\xff\n", b"\\x41" * 100]),
}
DEFINITIONS = [("n", "integer"), *((f"c{at}", kind) for at, kind in enumerate(CASES))]


def column(logical: str, values: list[Any]) -> pa.Array:
    """Moments are given as numbers."""
    kind = arrow_type(logical)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    return pa.array(values, kind)


def load(server: PostgresServer, table: str, columns: list[tuple[str, str]], content: bytes, how: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} ({', '.join(map(' '.join, columns))})".encode())
        connection.commit()
        with cursor.copy(f"COPY {table} FROM STDIN {how}".encode()) as copy:
            copy.write(content)


def test_both_formats_bring_the_same_values(postgres: PostgresServer) -> None:
    random, count = Random(8), 60
    full = [column(t, [*v, *random.choices(v, k=count - len(v))]) for t, v in CASES.values()]
    holes = [column(t, random.choices([*v, None], k=count)) for t, v in CASES.values()]
    names = [name for name, _ in DEFINITIONS[1:]]
    rows = pa.concat_tables([pa.table(full, names=names), pa.table(holes, names=names)])
    rows = rows.add_column(0, "n", pa.array(range(2 * count), pa.int32()))
    written = binary.encodings(DEFINITIONS, rows.schema)
    assert written is not None
    parts = [rows.slice(0, 7), rows.slice(7, 0), rows.slice(7, 60), rows.slice(67)]
    content = b"".join([binary.BEGIN, *(binary.tuples(part, written) for part in parts), binary.END])
    load(postgres, "as_binary", DEFINITIONS, content, "(FORMAT binary)")
    load(postgres, "as_text", DEFINITIONS, texts.lines(rows), "")
    for name, kind in DEFINITIONS:
        found = [postgres.execute(f"SELECT {name}::text FROM {table} ORDER BY n") for table in ("as_text", "as_binary")]
        assert len(found[0]) == 2 * count
        assert [pair for pair in zip(*found, strict=True) if pair[0] != pair[1]] == [], kind


@pytest.mark.parametrize(
    ("logical", "kind", "number"),
    [
        ("date", "date", 2**31 - 1),
        ("date", "date", -(2**31)),
        ("date", "date", 10_957 - 2**31),
        ("timestamp", "timestamp without time zone", -(2**63)),
        ("timestamp", "timestamp without time zone", 946_684_800_000_000 - 2**63),
    ],
)
def test_a_moment_that_postgresql_does_not_have_is_refused(
    postgres: PostgresServer, logical: str, kind: str, number: int
) -> None:
    """Among them those that would be its infinities."""
    columns = [("c", kind)]
    rows = pa.table({"c": column(logical, [number])})
    content = binary.tuples(rows, binary.encodings(columns, rows.schema) or [])
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        load(postgres, "refused", columns, binary.BEGIN + content + binary.END, "(FORMAT binary)")
    postgres.execute("DROP TABLE refused")


def test_a_text_with_nul_is_refused_and_other_types_stay_texts() -> None:
    rows = pa.table({"n": ["a\0"]})
    with pytest.raises(UnfitValue) as refused:
        binary.tuples(rows, binary.encodings([("n", "text")], rows.schema) or [])
    assert refused.value.column == "n"
    for kind in ("interval", "integer[]", '"char"', "public.mood", "numeric", "bit(3)"):
        assert binary.encodings([("n", kind)], rows.schema) is None


@pytest.mark.parametrize(
    ("logical", "kind", "value"), [("int32", "smallint", 32_768), ("string", "uuid", "not a uuid")]
)
def test_a_value_beyond_a_staged_column_s_type_is_named_by_column_type_and_hash(
    postgres: PostgresServer, logical: str, kind: str, value: Any
) -> None:
    good = {"int32": 32_767, "string": str(UUID(int=1))}[logical]
    columns = [('"k"', "integer"), ('"small one"', kind)]
    rows = pa.table({"k": pa.array([1, 2, 3], pa.int32()), "small one": column(logical, [good, value, None])})
    config = PgConfig(postgres.host, postgres.port, "postgres", "postgres")
    with (
        closing(PgTargetSession(config, "postgresql")) as session,
        pytest.raises(Retry) as refused,
        session.transaction(),
    ):
        session.load(session.temporary("staged", '"k" integer, "small one" ' + kind), columns, [rows])
    hashed = privacy.shown(str(value))
    told = f"column 'small one' has a value that its type in the target does not take: {hashed} is no {kind}"
    assert refused.value.message == told and str(value) not in told
