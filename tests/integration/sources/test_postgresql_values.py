"""A value comes out equal, bit for bit, by the log and by a chunk, on the oldest and the newest PostgreSQL."""

import datetime as dt
import secrets
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.pg_source import LogReader, chunk_of, config_of, table_of, walk
from support.pg_values import TYPES, VALUES
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.changelog.keys import keys as keys_of
from tailrace.changelog.types import fields_of
from tailrace.contract.resources import TableOptions
from tailrace.databases.postgresql.connect import connect
from tailrace.errors import ValueUnsupported, privacy
from tailrace.sources.api import KeyList, KeyRange
from tailrace.sources.findings import TableSize
from tailrace.sources.postgresql import binary, chunks
from tailrace.sources.postgresql.chunks import PgKeys
from tailrace.sources.postgresql.codec import decode
from tailrace.sources.postgresql.support import describe

ALL = KeyRange(None, None)
STRICT = TableOptions(match="*.*", on_unsupported="Fail")

EXACT = {
    *("boolean", "smallint", "integer", "bigint", "real", "double precision", "text", "character varying(5)"),
    *("character(5)", "name", "bytea", "uuid", "public.mood", "public.citext"),
}
"""Source types that `doctor` calls YES; all others of `VALUES` are PARTIAL."""
HOSTILE = """
ALTER ROLE postgres SET DateStyle = 'SQL, DMY'; ALTER ROLE postgres SET IntervalStyle = 'iso_8601';
ALTER ROLE postgres SET TimeZone = 'Asia/Kathmandu'; ALTER ROLE postgres SET extra_float_digits = -5;
ALTER ROLE postgres SET bytea_output = 'escape'; ALTER ROLE postgres SET statement_timeout = '1ms';
ALTER ROLE postgres SET search_path = public; ALTER ROLE postgres SET default_transaction_read_only = on;
ALTER DATABASE postgres SET quote_all_identifiers = on; ALTER ROLE postgres SET client_encoding = 'LATIN1'
"""


@pytest.fixture(params=turns(14, 18))
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param, {"lc_monetary": "C"}) as server:
        yield server


def same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    """Bit for bit: NaN equals NaN, 0 does not equal -0."""
    if pa.types.is_list(left.type):
        lengths = (pc.list_value_length(a).to_pylist() for a in (left, right))
        flat = (pa.chunked_array([a.combine_chunks().flatten()]) for a in (left, right))
        return next(lengths) == next(lengths) and same(*flat)
    if pa.types.is_struct(left.type):
        parts = [[a.combine_chunks().field(i) for i in range(left.type.num_fields)] for a in (left, right)]
        fields = (tuple(map(pa.chunked_array, zip(pair, strict=True))) for pair in zip(*parts, strict=True))
        return left.is_valid().equals(right.is_valid()) and all(same(*pair) for pair in fields)
    if pa.types.is_floating(left.type):
        bits = pa.int64() if left.type == pa.float64() else pa.int32()
        left, right = (a.combine_chunks().view(bits) for a in (left, right))
    return bool(left.equals(right))


def test_every_type_comes_out_equal_by_the_log_and_by_a_chunk_whatever_the_role_has_set(server: PostgresServer) -> None:
    config = config_of(server)
    rows = max(map(len, VALUES.values())) + 1
    with connect(config) as admin:
        for statement in TYPES.split(";"):
            admin.execute(statement)
        columns = ", ".join(f"c{i} {type}" for i, type in enumerate(VALUES))
        admin.execute(f"CREATE TABLE public.everything (id int PRIMARY KEY, {columns})")
        for statement in HOSTILE.split(";"):
            admin.execute(statement)
    with connect(config) as connection:
        table = table_of(connection, "public.everything")
        log = LogReader(connection, table)
        marks = ", ".join(["%s"] * (len(VALUES) + 1))
        for i in range(rows):
            values = [v[i] if i < len(v) else None for v in VALUES.values()]
            connection.execute(f"INSERT INTO public.everything VALUES ({marks})", [i, *values])
        logged, read = log.inserted(), chunk_of(config, table, ALL)
    assert logged.num_rows == read.num_rows == rows
    different = [
        f"{c.source_type}: {logged[c.name].to_pylist()} {read[c.name].to_pylist()}"
        for c in table.columns
        if not same(logged[c.name], read[c.name])
    ]
    assert different == []
    told = {c.source_type: c.support for c in describe(table, TableSize(), checks_text=True).columns}
    assert set(told) == {c.source_type for c in table.columns} and "NO" not in told.values()
    assert {kind for kind, support in told.items() if support == "YES"} == EXACT
    assert read["id"].to_pylist() == list(range(rows))
    found = {c.source_type: read[c.name].to_pylist() for c in table.columns}
    assert found["boolean"][:2] == [True, False]
    assert found["interval"][0] == "10 mons 3 days 04:05:06.7"
    assert found["character(5)"][0] == "ab   "
    assert found["json"][0] == '{"b": 1.0,  "a": [1, null]}'
    assert str(found["timestamp with time zone"][0]) == "2021-03-28 01:30:00+00:00"
    assert found["money"][0] == "-$12.34"
    assert all(
        read[c.name].null_count == rows - len(v) for c, v in zip(table.columns[1:], VALUES.values(), strict=True)
    )


KEY_TYPES = [t for t in VALUES if t not in ("json", "xml", "point")]


def test_the_text_of_a_key_is_read_back_to_the_very_same_row(server: PostgresServer) -> None:
    config = config_of(server)
    with connect(config) as connection:
        for statement in TYPES.split(";"):
            connection.execute(statement)
        for i, type in enumerate(KEY_TYPES):
            connection.execute(f"CREATE TABLE public.k{i} (a {type}, n int, PRIMARY KEY (a, n))")
            for n, value in enumerate(VALUES[type]):
                connection.execute(f"INSERT INTO public.k{i} VALUES (%s, %s)", [value, n])
            table = table_of(connection, f"public.k{i}")
            read = chunk_of(config, table, ALL)
            keys = keys_of([read["a"].combine_chunks(), read["n"].combine_chunks()])
            again = chunk_of(config, table, KeyList(tuple(keys)))
            assert same(read["a"], again["a"]) and read["n"].equals(again["n"]), type
            assert len(keys) == len(VALUES[type]), type
            assert PgKeys(connection, table).normal_keys(keys) == tuple(keys), type
            last = PgKeys(connection, table).max_key()
            assert last in keys, type
            assert same(read["a"], chunk_of(config, table, KeyRange(None, last))["a"]), type
            assert chunk_of(config, table, KeyRange(last, None)).num_rows == 0, type


@pytest.mark.parametrize("type", ["date", "timestamp", "timestamptz"])
def test_a_bound_may_be_a_value_that_no_target_can_hold(postgres: PostgresServer, type: str) -> None:
    config = config_of(postgres)
    with connect(config) as connection:
        connection.execute(f"CREATE TABLE public.t (a {type} PRIMARY KEY)")
        connection.execute("INSERT INTO public.t VALUES ('0044-03-15 BC'), ('2024-02-29'), ('infinity')")
        table = table_of(connection, "public.t")
        keys = PgKeys(connection, table)
        assert keys.max_key() == ("infinity",)
        first = keys.boundary(None, 1, ("infinity",))
        assert first is not None and first[0].endswith(" BC")
        second = keys.boundary(first, 1, ("infinity",))
        assert second is not None and second[0].startswith("2024-02-29")
        assert chunk_of(config, table, KeyRange(first, second))["a"].to_pylist()[0].year == 2024
        assert keys.normal_keys([first, second]) == (first, second)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("date", "infinity"),
        ("date", "10000-01-01"),
        ("date", "0044-03-15 BC"),
        ("timestamp", "-infinity"),
        ("timestamptz", "0001-01-01 00:00:00+00 BC"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00"),
        ("numeric(10,2)", "NaN"),
    ],
)
def test_a_value_that_the_target_cannot_hold_is_named_and_can_be_copied_as_text(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, type: str, value: str
) -> None:
    monkeypatch.setenv(privacy.VARIABLE, "1")
    config = config_of(postgres)
    with connect(config) as connection:
        connection.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, v {type})")
        connection.execute("INSERT INTO public.t VALUES (1, NULL), (2, %s), (3, NULL)", [value])
        with pytest.raises(
            ValueUnsupported, match=r"column 'v' of public\.t has the value .*as: \{v: text\}"
        ) as caught:
            chunk_of(config, table_of(connection, "public.t", STRICT), ALL)
        assert caught.value.table == "public.t" and value[:6] in caught.value.message
        told = describe(table_of(connection, "public.t", STRICT), TableSize(), checks_text=True).columns[1]
        assert told.support == "PARTIAL" and told.reason.startswith("holds no") and "options[].as" in told.suggestion
        as_text = table_of(connection, "public.t", TableOptions(match="public.t", as_text=("v",)))
        assert chunk_of(config, as_text, ALL)["v"].to_pylist() == [None, value, None]


CAST = """
CREATE FUNCTION public.double(v numeric) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN RETURN v::float8; EXCEPTION WHEN numeric_value_out_of_range THEN RETURN NULL; END $$
"""


def random_numeric(random: Random) -> str:
    digits = "".join(random.choices("0123456789", k=random.choice([1, 5, 17, 20, 38, 39, 60, 320])))
    point = random.choice([0, 0, len(digits) // 2, len(digits), len(digits) + random.choice([3, 300, 340])])
    padded = digits.rjust(point + 1, "0")
    number = f"{padded[: len(padded) - point]}.{padded[len(padded) - point :]}{'0' * random.choice([0, 3, 40])}"
    return random.choice(["", "-"]) + number.rstrip(".")


RANDOM = {
    "b": ("bool", "random() < 0.5"),
    "i2": ("int2", "part(16)"),
    "i4": ("int4", "NULLIF(part(32), 0)"),
    "i8": ("int8", "part(64)"),
    "f4": ("float4", "random() * 10 ^ (random() * 70 - 38)"),
    "f8": ("float8", "part(64) * 10.0 ^ (random() * 600 - 319)"),
    "infinite": ("date", "'-infinity'"),
    "d": ("date", "'4713-01-01 BC'::date + (random() * 5.8e6)::int"),
    "ts": ("timestamp", "'4713-01-02 BC'::timestamp + random() * interval '14000 years'"),
    "tz": ("timestamptz", "'0001-01-01 00:00:00+00'::timestamptz + random() * 315537897600 * interval '1 second'"),
    "at": ("time", "random() * interval '24 hours'"),
    "x": ("bytea", "decode(md5(g::text), 'hex')"),
    "v": ("varchar(20)", "repeat(chr(65 + g % 4000), g % 17)"),
    "u": ("uuid", "md5(g::text)::uuid"),
    "raw": ("uuid", "NULLIF(md5(g::text)::uuid, md5('7')::uuid)"),
    "n": ("numeric(18, 6)", "part(64) / 10.0 ^ 9 % 1e12"),
    "small": ("numeric(18, 18)", "part(64) % 1000 / 1000.0"),
    "whole": ("numeric(18, 0)", "part(58)"),
    "nan": ("numeric(15, 2)", "CASE WHEN g % 9 = 0 THEN 'NaN' ELSE round(part(40), -3) END"),
    "wide": ("numeric", "part(50) / 10.0 ^ (g % 25)"),
}
"""Type, and an expression over the number `g` of the row."""
PART = """
CREATE FUNCTION pg_temp.part(bits int) RETURNS numeric LANGUAGE sql VOLATILE AS $$
SELECT trunc((random() * 2 - 1)::numeric * 2.0 ^ (bits - 1) / 2.0 ^ trunc((random() * 1.3 * bits)::numeric)) $$
"""


def test_random_values_come_out_equal_in_binary_form_and_as_text(server: PostgresServer) -> None:
    config = config_of(server)
    wanted = {"raw": "binary", "wide": "decimal(16,3)", "at": "time"}
    options = TableOptions.model_validate({"match": "public.t", "as": wanted, "onUnsupported": "SetNull"})
    with connect(config) as connection:
        connection.execute(PART.encode())
        columns = ", ".join(f"{name} {type}" for name, (type, _) in RANDOM.items())
        values = ", ".join(expression.replace("part(", "pg_temp.part(") for _, expression in RANDOM.values())
        connection.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, {columns})".encode())
        connection.execute(f"INSERT INTO public.t SELECT g, {values} FROM generate_series(1, 4000) g".encode())
        table = table_of(connection, "public.t", options)
    found: list[pa.Table] = []
    for as_text in (False, True):
        batches: list[pa.RecordBatch] = []
        asked = chunks.AskedRows(ALL, None, chunks._columns_read(table, as_text))
        taken = chunks._values(table, batches.append, as_text)
        chunks.read_with(lambda: closing(connect(config)), table, asked, taken)
        found.append(pa.Table.from_batches(batches).combine_chunks())
    read = {c.name for c in table.columns if binary.reader(c) is not None}
    assert read == {c.name for c in table.columns}
    assert [name for name in found[0].column_names if not same(found[0][name], found[1][name])] == []
    partly = {name for name in found[0].column_names if 0 < found[0][name].null_count < 4000}
    assert {"d", "ts", "nan", "wide"} <= partly and found[0]["infinite"].null_count == 4000


def test_a_numeric_becomes_the_double_and_the_decimal_of_the_servers_own_cast(postgres: PostgresServer) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    given = ["NaN", "9007199254740993", "9007199254740993." + "0" * 700 + "1", "4" + "0" * 37, "1e-324", "1e400"]
    given += [random_numeric(random) for _ in range(300)]
    config = config_of(postgres)
    wanted = {"d": "double", "e": "decimal(38,1)", "s": "decimal(20,4)", "i": "double", "j": "decimal(5,0)"}
    options = TableOptions.model_validate({"match": "public.t", "as": wanted, "onUnsupported": "SetNull"})
    with connect(config) as connection:
        connection.execute(CAST)
        kinds = "d numeric, e numeric, s numeric, i bigint, j int"
        connection.execute(f"CREATE TABLE public.t (id int PRIMARY KEY, {kinds})")
        table = table_of(connection, "public.t", options)
        log = LogReader(connection, table)
        for i, text in enumerate(given):
            integers = random.randrange(-(2**63), 2**63), random.choice([99_999, 100_000, -7])
            statement = "INSERT INTO public.t VALUES (%s, %s, %s, %s, %s, %s)"
            connection.execute(statement, [i, text, text, text, *integers])
        logged, read = log.inserted(), chunk_of(config, table, ALL)
        exact = (
            "CASE WHEN {0} <> 'NaN' AND abs({0}) < 1e{1} AND {0} = round({0}, {2}) THEN {0}::numeric(38,{2})::text END"
        )
        casts = ", ".join(("public.double(d)", exact.format("e", 37, 1), exact.format("s", 16, 4), "i::float8"))
        small = "CASE WHEN abs(j) < 100000 THEN j::text END"
        by_cast = connection.execute(f"SELECT {casts}, {small} FROM public.t ORDER BY id").fetchall()
    assert [c.name for c in table.columns if not same(logged[c.name], read[c.name])] == []
    by_text = [repr(v) if isinstance(v, float) else None if v is None else format(v, "f") for v in values_of(read)]
    assert by_text == [repr(v) if isinstance(v, float) else v for row in by_cast for v in row]
    assert all(read[name].null_count not in (0, len(given)) for name in "des")


def test_uuids_are_their_bytes_and_times_are_times_in_keys_and_elsewhere(postgres: PostgresServer) -> None:
    config = config_of(postgres)
    options = TableOptions.model_validate({"match": "*.*", "as": {"u": "binary", "x": "binary", "at": "time"}})
    moment = "time '00:00' + (random() * 86399e6)::bigint * interval '1 microsecond'"
    with connect(config) as connection:
        connection.execute(b"CREATE DOMAIN public.name AS uuid")
        connection.execute(b"CREATE TABLE public.t (u uuid, x public.name, y bytea, at time(6), PRIMARY KEY (u, x))")
        table = table_of(connection, "public.t", options)
        log = LogReader(connection, table)
        for values in (
            f"SELECT gen_random_uuid(), gen_random_uuid(), '\\x00ff', {moment} FROM generate_series(1, 300)",
            "SELECT gen_random_uuid(), gen_random_uuid(), NULL, a FROM unnest("
            "'{00:00,24:00,23:59:59.999999,00:00:00.000001,NULL}'::time[]) a",
        ):
            connection.execute(f"INSERT INTO public.t {values}".encode())
        logged, read = log.inserted(), chunk_of(config, table, ALL)
        rows = connection.execute(b"SELECT u, x, y, at::text FROM public.t ORDER BY u, x").fetchall()
        assert sorted(logged.to_pylist(), key=lambda row: row["u"]) == read.to_pylist()
        assert [tuple(row.values()) for row in read.to_pylist()] == [
            (u.bytes, x.bytes, y, None if at in (None, "24:00:00") else dt.time.fromisoformat(at))
            for u, x, y, at in rows
        ]
        keys = keys_of([read["u"].combine_chunks(), read["x"].combine_chunks()])
        assert chunk_of(config, table, KeyList(tuple(keys))) == read and PgKeys(connection, table).max_key() == keys[-1]
        written = [(str(u), f"{{{x}}}".upper()) for u, x, _, _ in rows]
        normal_keys = PgKeys(connection, table).normal_keys
        assert normal_keys(written) == normal_keys(keys) == tuple(keys)
        assert walk(config, connection, table, 7) == read.to_pylist()
        strict = options.model_copy(update={"on_unsupported": "Fail"})
        with pytest.raises(
            ValueUnsupported, match=r"column 'at' of public\.t has the value .*, which time cannot hold"
        ):
            chunk_of(config, table_of(connection, "public.t", strict), ALL)


def values_of(read: pa.Table) -> list[Any]:
    return [row[name] for row in read.to_pylist() for name in "desij"]


def test_a_toast_value_that_the_log_did_not_carry_is_marked_and_not_taken_for_null(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, big text, n int)")
        connection.execute("ALTER TABLE public.t ALTER big SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO public.t VALUES (1, repeat('x', 20000), 0), (2, NULL, 0), (3, 'small', 0)")
        log = LogReader(connection, table_of(connection, "public.t"))
        connection.execute("UPDATE public.t SET n = id")
        _, big, n = log.tuples(b"U")
    assert big.unchanged is not None
    assert big.unchanged.tolist() == [True, False, False]
    assert big.values.to_pylist() == [None, None, b"small"]
    assert n.unchanged is None
    assert n.values.to_pylist() == [b"1", b"2", b"3"]


def test_text_that_is_not_utf8_in_a_sql_ascii_database_is_refused_by_name(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        admin.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    config = config_of(postgres).__class__(postgres.host, postgres.port, "ascii", "postgres")
    with connect(config) as connection:
        connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO public.t VALUES (1, convert_from('\\xff41', 'SQL_ASCII'))")
        with pytest.raises(
            ValueUnsupported, match=r"column 'v' of public\.t has text that is not UTF-8 \(string #\w{4}\)"
        ):
            chunk_of(config, table_of(connection, "public.t", STRICT), ALL)


ARRAYS = {
    "i": ("int2[]", "int32", "(random() * 60000 - 30000)::int::int2"),
    "l": ("bigint[]", "int64", "(random() * 1e18)::bigint"),
    "n": ("numeric(12,3)[]", "decimal(12,3)", "(random() * 1e8)::numeric(12,3)"),
    "u": ("numeric[]", "string", "(random() * 1e8)::numeric / 7"),
    "f": ("float8[]", "float64", "CASE WHEN random() < 0.2 THEN 'NaN' ELSE random() * 1e10 END"),
    "b": ("bool[]", "bool", "random() < 0.5"),
    "x": ("bytea[]", "binary", "decode(md5(random()::text), 'hex')"),
    "d": ("date[]", "date", "date '2000-01-01' + (random() * 90000)::int"),
    "t": ("timestamp[]", "timestamp", "timestamp '1900-01-01' + random() * interval '100 years'"),
    "z": ("timestamptz[]", "timestamptz", "timestamptz '1900-01-01' + random() * interval '100 years'"),
    "s": (
        "text[]",
        "string",
        r"""substr(E'{},"\\\\ \\nNULLa\\u00fc\\U0001F600', (random() * 14)::int, (random() * 5)::int)""",
    ),
    "c": ("char(4)[]", "string", "substr('null', 1, (random() * 4)::int)"),
    "e": ("public.mood[]", "string", "CASE WHEN random() < 0.5 THEN 'so, so' ELSE 'NULL' END::public.mood"),
    "j": ("jsonb[]", "string", """jsonb_build_object('a', '"' || random())"""),
    "p": ("public.pair[]", "string", """ROW((random() * 9)::int, '"{,')::public.pair"""),
    "o": ("public.tags", "string", "md5(random()::text)"),
    "m": ("public.small[]", "int32", "(random() * 9)::int::public.small"),
    "v": ("public.price[]", "decimal(7,2)", "(random() * 999)::numeric(7,2)::public.price"),
}
"""Column: type, logical type of its elements, a random element."""


FIELDS = {name: array for name, array in ARRAYS.items() if name not in "omv"} | {
    'a, "b': ("int[]", "string", "ARRAY[1, NULL, 3]"),
    "z(\\": ("public.small", "int32", "(random() * 9)::int"),
}
"""Field: its type as an array, its logical type, a random value."""


def test_the_fields_of_composites_are_what_columns_of_theirs_hold(postgres: PostgresServer) -> None:
    """Of values made by the server: by chunk and by log the same, and each field as the codec reads it alone."""
    options = TableOptions.model_validate({"match": "public.t", "as": {"c": "struct", "d": "struct", "e": "struct"}})
    config = config_of(postgres)
    names = ['"{}"'.format(name.replace('"', '""')) for name in FIELDS]
    made = [f"CASE WHEN random() < 0.2 THEN NULL ELSE {one} END" for _, _, one in FIELDS.values()]
    kinds = [
        f"{name} {kind if kind == 'int[]' else kind.removesuffix('[]')}"
        for name, (kind, _, _) in zip(names, FIELDS.values(), strict=True)
    ]
    with connect(config) as connection:
        for line in (
            "CREATE TYPE public.mood AS ENUM ('so, so', 'NULL')",
            "CREATE TYPE public.pair AS (n int, m text)",
            "CREATE DOMAIN public.small AS int",
            f"CREATE TYPE public.whole AS ({', '.join(kinds)}, gone int)",
            "ALTER TYPE public.whole DROP ATTRIBUTE gone",
            "CREATE DOMAIN public.part AS public.pair",
            "CREATE TABLE public.r (n numeric(9,2) PRIMARY KEY, m text)",
            "CREATE TABLE public.t (id int PRIMARY KEY, c public.whole, d public.part, e public.r)",
        ):
            connection.execute(line.encode())
        table = table_of(connection, "public.t", options)
        assert [fields_of(c.logical) for c in table.columns[1:]] == [
            tuple((name, kind) for name, (_, kind, _) in FIELDS.items()),
            (("n", "int32"), ("m", "string")),
            (("n", "decimal(9,2)"), ("m", "string")),
        ]
        log = LogReader(connection, table)
        connection.execute(
            f"INSERT INTO public.t SELECT g, CASE WHEN g % 7 > 0 THEN ROW({', '.join(made)})::public.whole END,"
            """ ROW(g, CASE g % 3 WHEN 0 THEN '' WHEN 1 THEN '"\\' END)::public.pair, ROW(g / 8.0, ' ')::public.r"""
            " FROM generate_series(1, 300) g".encode()
        )
        logged, read = log.inserted(), chunk_of(config, table, ALL)
        assert [c.name for c in table.columns if not same(logged[c.name], read[c.name])] == []
        assert read["d"].to_pylist()[:3] == [{"n": 1, "m": '"\\'}, {"n": 2, "m": None}, {"n": 3, "m": ""}]
        for place, (name, (_, kind, _)) in enumerate(zip(names, FIELDS.values(), strict=True)):
            rows = connection.execute(
                f"SELECT CASE WHEN (c).{name} IS NOT NULL THEN format('%s', (c).{name}) END"
                " FROM public.t WHERE c IS DISTINCT FROM NULL ORDER BY id".encode()
            ).fetchall()
            texts = pa.array([row[0] and row[0].encode() for row in rows], pa.large_binary())
            alone = decode(texts, kind, "public.t", name)
            field = read["c"].combine_chunks().drop_null().field(place)
            assert same(pa.chunked_array([field]), pa.chunked_array([alone])), name


def test_the_elements_of_arrays_are_what_columns_of_theirs_hold(postgres: PostgresServer) -> None:
    """Of arrays made by the server: by chunk and by log the same, and each element as the codec reads it alone."""
    options = TableOptions.model_validate({"match": "public.t", "as": dict.fromkeys(ARRAYS, "list")})
    config = config_of(postgres)
    made = ", ".join(
        f"CASE WHEN g % 7 = 0 THEN NULL ELSE ARRAY(SELECT CASE WHEN random() < 0.2 THEN NULL ELSE {one} END"
        f" FROM generate_series(1, (g + {place}) % 5)) END"
        for place, (_, _, one) in enumerate(ARRAYS.values())
    )
    with connect(config) as connection:
        for line in (
            "CREATE TYPE public.mood AS ENUM ('so, so', 'NULL')",
            "CREATE TYPE public.pair AS (n int, m text)",
            "CREATE DOMAIN public.tags AS text[]",
            "CREATE DOMAIN public.small AS int",
            "CREATE DOMAIN public.money AS numeric(7,2)",
            "CREATE DOMAIN public.price AS public.money",
            f"CREATE TABLE public.t (id int PRIMARY KEY, {', '.join(f'{c} {a[0]}' for c, a in ARRAYS.items())})",
        ):
            connection.execute(line.encode())
        table = table_of(connection, "public.t", options)
        assert {c.name: c.logical for c in table.columns if c.name != "id"} == {
            name: f"list<{element}>" for name, (_, element, _) in ARRAYS.items()
        }
        log = LogReader(connection, table)
        connection.execute(f"INSERT INTO public.t SELECT g, {made} FROM generate_series(1, 400) g".encode())
        logged, read = log.inserted(), chunk_of(config, table, ALL)
        assert [c.name for c in table.columns if not same(logged[c.name], read[c.name])] == []
        for name, (_, element, _) in ARRAYS.items():
            rows = connection.execute(
                f"SELECT CASE WHEN {name}[place] IS NOT NULL THEN format('%s', {name}[place]) END"
                f" FROM public.t, generate_subscripts({name}, 1) place ORDER BY id, place".encode()
            ).fetchall()
            texts = pa.array([row[0] and row[0].encode() for row in rows], pa.large_binary())
            alone = decode(texts, element, "public.t", name)
            assert same(pa.chunked_array([read[name].combine_chunks().flatten()]), pa.chunked_array([alone])), name
            sizes = connection.execute(f"SELECT cardinality({name}) FROM public.t ORDER BY id".encode()).fetchall()
            assert pc.list_value_length(read[name]).to_pylist() == [row[0] for row in sizes]
