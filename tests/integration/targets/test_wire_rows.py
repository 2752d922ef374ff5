"""Rows of a chunk go from PostgreSQL into PostgreSQL as the source's server sends them, and are there what they are in
the source by the servers' own text, whatever their versions; where something has to look at values, it does."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from support.conforming import Database, Table
from support.pg_source import config_of, table_of
from support.pg_values import VALUES
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.contract.resources import TableOptions
from tailrace.databases.postgresql.connect import PgConfig, connect
from tailrace.databases.postgresql.wire import EXACT, PRODUCT
from tailrace.databases.wire import WireForm, WireRows
from tailrace.reading.task import ChunkFile, ChunkTask, perform
from tailrace.sources.api import KeyRange
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.source import PgReader
from tailrace.targets.postgresql.session import PgTargetSession

from .test_postgresql_exact import MADE, ONLY_HERE

ALL = KeyRange(None, None)
SAME = TableOptions(match="*.*").into_same_product()
POINT, MOMENT = (
    "point((random() - 0.5) * 1e6, random())",
    "timestamp '2000-01-01' + (random() - 0.3) * interval '7000 years'",
)
RANDOM = {
    "bool": "random() < 0.5",
    "int2": "(random() * 65535 - 32768)::int2",
    "int4": "(random() * 4294967294 - 2147483648)::int4",
    "int8": "((random() - 0.5) * 1.8e19)::int8",
    "float4": "((random() - 0.5) * 10 ^ (random() * 70 - 35))::float4",
    "float8": "(random() - 0.5) * 10 ^ (random() * 600 - 300)",
    "numeric": "round((random() - 0.5)::numeric * 10::numeric ^ (random() * 60)::int, (random() * 70 - 30)::int)",
    "numeric(12,2)": "((random() - 0.5) * 1e10)::numeric(12,2)",
    "text": "left(md5(random()::text) || chr((random() * 50000)::int + 161), (random() * -33)::int)",
    "varchar(9)": "left(md5(random()::text), (random() * 9)::int)",
    "char(9)": "left(md5(random()::text), (random() * 9)::int)",
    "bytea": "decode(left(md5(random()::text), 2 * (random() * 16)::int), 'hex')",
    "date": "date '2000-01-01' + ((random() - 0.4) * 2000000)::int",
    "timestamp": MOMENT,
    "timestamp(0)": MOMENT,
    "timestamptz": MOMENT,
    "time": "time '00:00' + random() * interval '1 day'",
    "timetz": "((time '00:00' + random() * interval '1 day')::text || '+' || (random() * 14)::int)::timetz",
    "uuid": "md5(random()::text)::uuid",
    "json": "json_build_object('a', random(), 'b', md5(random()::text))",
    "jsonb": "jsonb_build_object('a', random(), 'b', ARRAY[NULL, md5(random()::text)], 'c', random() < 0.5)",
    "inet": "('10.' || (random() * 255)::int || '.0.1/' || (random() * 32)::int)::inet",
    "cidr": "('10.' || (random() * 255)::int || '.0.0/16')::cidr",
    "macaddr": "left(md5(random()::text), 12)::macaddr",
    "macaddr8": "left(md5(random()::text), 16)::macaddr8",
    "bit(11)": "(random() * 2047)::int::bit(11)",
    "varbit": "substring((random() * 2147483647)::int::bit(32), 1, (random() * 32)::int)",
    "oid": "(random() * 4294967295)::int8::oid",
    "pg_lsn": "'0/0'::pg_lsn + (random() * 1e12)::numeric",
    "point": POINT,
    "line": f"line({POINT}, {POINT})",
    "lseg": f"lseg({POINT}, {POINT})",
    "box": f"box({POINT}, {POINT})",
    "path": f"path(polygon(5, circle({POINT}, random() + 1)))",
    "polygon": f"polygon(5, circle({POINT}, random() + 1))",
    "circle": f"circle({POINT}, random())",
    "tsvector": "to_tsvector('simple', md5(random()::text) || ' b ' || md5(random()::text))",
}
RANGES = {
    "int4": "(random() * 100)::int, 100 + (random() * 100)::int, '[]'",
    "int8": "NULL, 100 + (random() * 100)::int8",
    "num": "random()::numeric, 1 + random()::numeric, '(]'",
    "date": "date '2000-01-01' + (random() * 99)::int, NULL",
    "ts": f"least({MOMENT}, 'infinity'), 'infinity'",
    "tstz": "'-infinity', timestamptz '2000-01-01' + random() * interval '9 years'",
}
KINDS = (
    RANDOM
    | {f"{kind}[]": f"ARRAY[{value}, NULL, {value}]" for kind, value in RANDOM.items()}
    | {f"{kind}range": f"{kind}range({bounds})" for kind, bounds in RANGES.items()}
    | {f"{kind}multirange": f"{kind}multirange({kind}range({bounds}))" for kind, bounds in RANGES.items()}
)
"""An expression for random values of each type."""
EDGES = {kind: VALUES.get(kind, []) + ONLY_HERE.get(kind, []) for kind in [*VALUES, *ONLY_HERE]}
AS_VALUES = {
    '"char"', "name", "interval", "xml", "money", "regclass", "public.mood", "public.pair", "public.citext",
    "public.mood[]", "public.hstore", "public.lengths", "tsquery", "jsonpath", "txid_snapshot",
    "interval day to second(3)",
}  # fmt: skip
"""Types of `EDGES` whose values are looked at."""
ROWS = 200


@dataclass
class Pair:
    source: PostgresServer
    target: PostgresServer
    folder: Path

    @property
    def config(self) -> PgConfig:
        return config_of(self.source)

    def table(self, name: str, options: TableOptions = SAME) -> PgTable:
        with connect(self.config) as connection:
            return table_of(connection, name, options)

    def task(self, table: PgTable, config: PgConfig | None = None) -> ChunkTask:
        """The first chunk of its copy."""
        (self.folder / "log").mkdir(exist_ok=True)
        schema = table.schema.model_copy(update={"version": 1})
        copy = Table(Database(self.folder, self.target, source="postgresql"), schema)
        return ChunkTask(PgReader(config or self.config), table, ALL, None, copy.unit.chunk_writer(schema), "s", 0)


@pytest.fixture(scope="module", params=turns(((14, 18),), ((18, 14),)))
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    source, target = request.param
    with PostgresServer(source) as first, PostgresServer(target) as second:
        yield first, second


@pytest.fixture
def pair(servers: tuple[PostgresServer, PostgresServer], tmp_path: Path) -> Pair:
    for server in servers:
        server.execute(
            "DROP SCHEMA IF EXISTS public, shop, _tailrace CASCADE; CREATE SCHEMA public; CREATE SCHEMA shop"
        )
    return Pair(*servers, tmp_path)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("values are looked at")

    monkeypatch.setattr(PgReader, "read", read)


def texts(server: PostgresServer, table: str, names: list[str]) -> list[tuple[object, ...]]:
    listed = ", ".join(f"{name}::text" for name in names)
    return server.execute(f"SELECT {listed} FROM {table} ORDER BY id")


def filled(pair: Pair) -> PgTable:
    """All columns of types that are exact."""
    for server in (pair.source, pair.target):
        server.execute(MADE)
    columns = [f"r{at} {kind}" for at, kind in enumerate(KINDS)] + [f"e{at} {kind}" for at, kind in enumerate(EDGES)]
    pair.source.execute(f"CREATE TABLE shop.everything (id int PRIMARY KEY, {', '.join(columns)})")
    values = ", ".join(f"CASE WHEN random() < 0.9 THEN {value} END" for value in KINDS.values())
    names = ", ".join(f"r{at}" for at in range(len(KINDS)))
    pair.source.execute(
        f"INSERT INTO shop.everything (id, {names}) SELECT g, {values} FROM generate_series(1, {ROWS}) g"
    )
    with pair.source.connect() as connection:
        for at, given in enumerate(EDGES.values()):
            for row, value in enumerate(given, 1):
                connection.execute(f"UPDATE shop.everything SET e{at} = %s WHERE id = {row}".encode(), [value])
        connection.commit()
    kinds = [f"e{at}" for at, kind in enumerate(EDGES) if kind not in AS_VALUES]
    chosen = ["id", *(f"r{at}" for at in range(len(KINDS))), *kinds]
    table = pair.table("shop.everything", SAME.model_copy(update={"columns": chosen}))
    assert {column.base_type[1] for column in table.columns} == EXACT
    return table


@pytest.mark.usefixtures("unread")
def test_every_exact_type_arrives_as_itself_by_what_another_version_sends(pair: Pair) -> None:
    table = filled(pair)
    task, names = pair.task(table), [column.name for column in table.columns]
    there = texts(pair.source, "shop.everything", names)
    file = perform(task)
    assert (file.rows, file.nulled) == (ROWS, ()) and file.size > ROWS * len(names)
    staged = f"_tailrace.{file.path}"
    assert texts(pair.target, staged, names) == there
    assert pair.target.execute(f"SELECT id - 1 - _tailrace_n, count(*)::int FROM {staged} GROUP BY 1") == [(0, ROWS)]
    writer, sent = task.writer.wire, list[WireRows]()
    assert writer is not None
    form = writer.form
    reader = task.reader.wire(table, form)
    assert reader is not None
    reader.read(ALL, None, sent.append)
    with closing(PgTargetSession(config_of(pair.target), "postgresql")) as session, session.transaction():
        plain = session.temporary("plain", ", ".join(" ".join(column) for column in form.columns))
        session.wire.load(plain, [name for name, _ in form.columns], sent)
        listed = ", ".join(f"{name}::text" for name in names)
        session.run("SET LOCAL search_path = public; SET LOCAL TimeZone TO DEFAULT")
        assert session.rows(f"SELECT {listed} FROM {plain} ORDER BY id") == there


def test_types_that_are_not_known_to_be_exact_are_read_by_values(pair: Pair) -> None:
    pair.source.execute(MADE)
    columns = [f"c{at} {kind}" for at, kind in enumerate(sorted(AS_VALUES))]
    pair.source.execute(f"CREATE TABLE shop.t (id int PRIMARY KEY, {', '.join(columns)})")
    for at in range(len(columns)):
        table = pair.table("shop.t", SAME.model_copy(update={"columns": ["id", f"c{at}"]}))
        assert PgReader(pair.config).wire(table, form_of(table)) is None, columns[at]


def form_of(table: PgTable, **other: str) -> WireForm:
    """The form of a target that has each column's own type, but for others."""
    kinds = [(c.name, other.get(c.name, c.behind or c.source_type)) for c in table.columns]
    return WireForm(PRODUCT, tuple(kinds))


def test_a_column_that_differs_in_the_target_is_read_by_values(pair: Pair) -> None:
    pair.source.execute("CREATE TABLE shop.t (id int PRIMARY KEY, a int, b numeric(9,2), c text, d date)")
    reader, table = PgReader(pair.config), pair.table("shop.t")
    assert reader.wire(table, form_of(table)) is not None
    for other in ({"a": "bigint"}, {"b": "numeric(9,3)"}, {"c": "character varying"}, {"id": "bigint"}):
        assert reader.wire(table, form_of(table, **other)) is None
    form = form_of(table)
    assert reader.wire(table, WireForm("another product", form.columns)) is None
    for columns in (form.columns[:-1], (*form.columns, ("e", "text")), (*form.columns[1:], form.columns[0])):
        assert reader.wire(table, WireForm(PRODUCT, columns)) is None


def test_a_column_whose_values_the_copy_lacks_in_part_is_read_by_values(pair: Pair) -> None:
    pair.source.execute("CREATE TABLE shop.t (id int PRIMARY KEY, d date, a int[])")
    other_product = {"columns": ["id", "d"]}
    as_list = {"columns": ["id", "a"], "as": {"a": "list"}}
    masked = {"mask": [{"column": "d", "method": "Redact"}]}
    for given in (other_product, as_list, masked):
        options = TableOptions.model_validate({"match": "*.*", **given})
        table = pair.table("shop.t", options if given is other_product else options.into_same_product())
        assert PgReader(pair.config).wire(table, form_of(table)) is None


def test_a_key_that_travels_as_text_is_read_by_values(pair: Pair) -> None:
    pair.source.execute("CREATE TABLE shop.t (a uuid, b numeric(9,2), c int, PRIMARY KEY (a, b))")
    table = pair.table("shop.t")
    assert PgReader(pair.config).wire(table, form_of(table)) is None


@pytest.mark.usefixtures("unread")
def test_keys_are_kept_in_their_order_wherever_they_stand_in_a_row(pair: Pair) -> None:
    pair.source.execute(
        "CREATE TABLE shop.t (x numeric(9,2), b text, id int, y interval, a bigint, PRIMARY KEY (a, b));"
        " ALTER TABLE shop.t DROP y; INSERT INTO shop.t SELECT g / 3.0, 'k' || g, g, -g FROM generate_series(1, 9) g"
    )
    table = pair.table("shop.t")
    file = perform(pair.task(table))
    ((kept,),) = pair.target.execute("SELECT row_keys FROM _tailrace.keys_of_chunks")
    with pa.ipc.open_stream(kept) as stream:
        assert stream.read_all().to_pydict() == {"a": [*range(-9, 0)], "b": [f"k{n}" for n in range(9, 0, -1)]}
    names = [column.name for column in table.columns]
    assert texts(pair.target, f"_tailrace.{file.path}", names) == texts(pair.source, "shop.t", names)


def test_an_empty_chunk_leaves_nothing(pair: Pair) -> None:
    pair.source.execute("CREATE TABLE shop.t (id int PRIMARY KEY)")
    assert perform(pair.task(pair.table("shop.t"))).path is None
    assert pair.target.execute("SELECT * FROM _tailrace.chunks") == []


def test_text_that_is_not_utf8_is_read_by_values(pair: Pair) -> None:
    """The target does not take it as it is sent."""
    pair.source.execute("DROP DATABASE IF EXISTS odd")
    pair.source.execute("CREATE DATABASE odd ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    rows = r"CREATE TABLE public.t (id int PRIMARY KEY, t text); INSERT INTO public.t VALUES (1, 'a'), (2, E'\377')"
    pair.source.execute(rows, dbname="odd")
    config = PgConfig(pair.source.host, pair.source.port, "odd", "postgres")
    with connect(config) as connection:
        table = table_of(connection, "public.t", SAME)
    assert PgReader(config).wire(table, form_of(table)) is not None
    file: ChunkFile = perform(pair.task(table, config))
    assert (file.rows, file.nulled) == (2, (("t", 1),))
    assert texts(pair.target, f"_tailrace.{file.path}", ["t"]) == [("a",), (None,)]
    assert pair.target.execute("SELECT count(*)::int FROM _tailrace.chunks") == [(1,)]
