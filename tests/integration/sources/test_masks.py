"""Masked columns out of real servers: one value has one mask, whether the log or a chunk brings it, whatever its type;
nothing clear is written; and what a changed mask, another key or a row filter do to tables that are captured already.
"""

import hmac
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.clear_values import found_in
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.contract.resources import Replicator
from tailrace.selection import masking, masks
from tailrace.sources.api import Source

MARKER = "clear-Ada-7f3a"
KEY, OTHER = "k" * 32, "o" * 32
METHODS: dict[str, dict[str, Any]] = {
    "h": {"method": "Hash"},
    "r": {"method": "Redact"},
    "t": {"method": "Truncate", "length": 4},
}
POSTGRESQL = (
    *("text", "varchar(60)", "char(60)", "bigint", "numeric(12,3)", "double precision", "boolean", "bytea"),
    *("date", "timestamp(3)", "timestamptz", "uuid", "jsonb", "time", "int[]"),
)
MYSQLS = (
    *("text", "varchar(60)", "char(60)", "bigint", "decimal(12,3)", "double", "boolean", "varbinary(60)"),
    *("date", "datetime(3)", "timestamp(6) NULL", "enum('x','y')", "json", "time(2)", "bit(9)", "year"),
)


@dataclass
class Product:
    server: PostgresServer | MysqlServer
    types: tuple[str, ...]
    source: dict[str, Any]

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement)

    def opened(self) -> Source:
        return sources.open(Replicator.model_validate(document_of(source=self.source)).spec.source, "test")


@contextmanager
def postgresql() -> Iterator[Product]:
    with PostgresServer(18, {"logical_decoding_work_mem": "64kB"}) as server:
        spec = {"type": "postgresql", "host": server.host, "port": server.port}
        server.execute("CREATE SCHEMA m")
        yield Product(server, POSTGRESQL, {**spec, "database": "postgres", "username": "postgres"})


@contextmanager
def mysql(name: str) -> Iterator[Product]:
    with MysqlServer(name) as server:
        server.execute("CREATE DATABASE m")
        spec = {"type": "mysql", "host": server.host, "port": server.port, "username": server.user}
        yield Product(server, MYSQLS, spec)


@pytest.fixture(params=turns("postgresql", MYSQL, MARIADB_NEWEST))
def product(request: pytest.FixtureRequest) -> Iterator[Product]:
    with postgresql() if request.param == "postgresql" else mysql(request.param) as made:
        yield made


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mask-key"
    yield path
    masking.configure(None)


def copy_of(product: Product, folder: Path, options: list[dict[str, Any]]) -> Pipeline:
    document = document_of(
        source=product.source,
        tables={"include": ["m.*"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 7, "parallelism": 2},
        options=options,
        maskKey={"file": str(folder / "mask-key")},
    )
    return Pipeline(document, product.opened(), folder)


def started(copy: Pipeline, key: str) -> AbstractContextManager[None]:
    """As a process would that finds this key in the file."""
    (copy.folder / "mask-key").write_text(key)
    masks.configure(copy.replicator.spec, None)
    return copy.running()


def level(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(end)


def by_id(copy: Pipeline, table: str) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in copy.lake.table("m", table).rows().to_pylist()}


def literal(type: str, random: Random) -> str:
    """A value at random, as SQL."""
    number, day = random.randrange(10**6), f"20{random.randrange(10, 38)}-0{random.randrange(1, 10)}-11"
    clock = f"{random.randrange(10, 24)}:05:{random.randrange(10, 60)}"
    return {
        "text": f"'{MARKER} é\U0001f600 {number}'", "varchar(60)": f"'{MARKER}{number}'",
        "char(60)": f"'{MARKER}{number}'",
        "bigint": f"{-number * 7_777_777}", "year": f"{2000 + number % 100}", "bit(9)": f"{number % 512}",
        "boolean": random.choice(("true", "false")), "date": f"'{day}'",
        "uuid": f"'{number:08}-0000-4000-8000-00000000abcd'",
        "jsonb": f'\'{{"b": "{MARKER}", "a": [{number}, null]}}\'', "json": f'\'{{"b": "{MARKER}", "a": [{number}]}}\'',
        "enum('x','y')": random.choice(("'x'", "'y'")), "int[]": f"'{{{number},NULL}}'", "time": f"'{clock}.5'",
        "time(2)": f"'{clock}.25'", "bytea": f"'{MARKER}{number}'", "varbinary(60)": f"'{MARKER}{number}'",
    }.get(type, f"'{day} {clock}.125'" if "time" in type else f"{number / 1000}")  # fmt: skip


def columns_of(types: tuple[str, ...]) -> dict[str, str]:
    return {f"c{i}{method}": type for i, type in enumerate(types) for method in METHODS}


def test_log_and_chunk_make_equal_masks_of_every_type_and_nothing_clear_is_written(
    product: Product, tmp_path: Path, key: Path
) -> None:
    columns, random = columns_of(product.types), Random(5)
    defined = ", ".join(f"{name} {type}" for name, type in columns.items())
    product.run(*(f"CREATE TABLE m.{t} (id int PRIMARY KEY, {defined}, n int)" for t in ("chunk", "log")))
    rows = []
    for number in range(30):
        values = {t: "NULL" if random.random() < 0.15 else literal(t, random) for t in product.types}
        rows.append(f"({number}, {', '.join(values[type] for type in columns.values())}, 0)")
    product.run(f"INSERT INTO m.chunk VALUES {', '.join(rows)}")
    if isinstance(product.server, PostgresServer):
        product.run("ALTER TABLE m.chunk REPLICA IDENTITY FULL")
    mask = [{"column": name, **METHODS[name[-1]]} for name in columns]
    copy = copy_of(product, tmp_path, [{"match": "m.*", "mask": mask}])
    with started(copy, KEY):
        level(copy)
        product.run(f"INSERT INTO m.log VALUES {', '.join(rows)}")
        level(copy)
    with started(copy, KEY):
        for table in ("chunk", "log"):
            product.run(
                f"UPDATE m.{table} SET n = 1 WHERE id < 5",
                f"UPDATE m.{table} SET id = id + 100 WHERE id BETWEEN 10 AND 12",
                f"DELETE FROM m.{table} WHERE id = 20",
            )
        level(copy)
        assert copy.driver.faults() == {}
    found = by_id(copy, "chunk")
    assert found == by_id(copy, "log") and len(found) == 29 and found[110]["n"] == 0 and found[1]["n"] == 1
    assert {type(v) for row in found.values() for name, v in row.items() if name[0] == "c"} == {str, type(None)}
    assert {row["c0r"] for row in found.values()} == {"***", None}
    assert {row["c0t"] for row in found.values()} == {"clea", None}
    texts = dict(product.server.execute("SELECT id, c0h FROM m.chunk"))
    assert {i: row["c0h"] for i, row in found.items()} == {i: hashed(text, KEY) for i, text in texts.items()}
    assert found_in(tmp_path, MARKER) == found_in(tmp_path, MARKER.encode().hex()) == []


def hashed(text: str | None, key: str) -> str | None:
    return None if text is None else hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


def test_a_large_transaction_and_values_that_the_log_leaves_out_are_masked(tmp_path: Path, key: Path) -> None:
    """PostgreSQL: unchanged TOAST values stay as they are, and come as holes where a key moves."""
    with postgresql() as product:
        big = f"'{MARKER}' || (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"
        product.run("CREATE TABLE m.t (id int PRIMARY KEY, v text, n int)")
        product.run(f"INSERT INTO m.t SELECT i, {big} || i, 0 FROM generate_series(1, 5) i")
        copy = copy_of(product, tmp_path, [{"match": "m.t", "mask": [{"column": "v", "method": "Hash"}]}])
        with started(copy, KEY):
            level(copy)
            product.run("UPDATE m.t SET n = 1", "UPDATE m.t SET id = id + 10 WHERE id > 3")
            product.run(f"INSERT INTO m.t SELECT i, {big} || i, 2 FROM generate_series(100, 200) i")
            level(copy)
            assert copy.driver.faults() == {}
        texts = dict(product.server.execute("SELECT id, v FROM m.t"))
        assert {i: row["v"] for i, row in by_id(copy, "t").items()} == {i: hashed(v, KEY) for i, v in texts.items()}
        assert found_in(tmp_path, MARKER) == []


def test_another_mask_key_or_row_filter_never_mixes_with_what_was_written(
    product: Product, tmp_path: Path, key: Path
) -> None:
    """With onSchemaChange EvolveAdditive the table stops by name; by default it starts over, in its new form alone."""
    product.run(*(f"CREATE TABLE m.{t} (id int PRIMARY KEY, v varchar(60))" for t in ("stops", "evolves")))
    mask = [{"column": "v", "method": "Hash"}]
    options = [
        {"match": "m.evolves", "mask": mask},
        {"match": "m.stops", "mask": mask, "onSchemaChange": "EvolveAdditive"},
    ]
    copy = copy_of(product, tmp_path, options)

    def insert(number: int) -> None:
        product.run(*(f"INSERT INTO m.{t} VALUES ({number}, '{MARKER}')" for t in ("stops", "evolves")))

    def stopped() -> str:
        copy.until(lambda s: any(t.stopped and t.schema.name == "m.stops" for t in s.tables.values()), work=True)
        (found,) = [t.stopped for t in copy.state.tables.values() if t.stopped and t.schema.name == "m.stops"]
        assert found.error == "SchemaChangeUnsupported" and MARKER not in found.message
        return found.message

    insert(1)
    with started(copy, KEY):
        level(copy)
    insert(2)  # while nothing runs: its row is read by the old version, and not hashed by the new key
    with started(copy, OTHER):
        message = stopped()
        assert "'v' of m.stops" in message and ("another key" in message or "copied as" in message)
        over(copy, {1: hashed(MARKER, OTHER), 2: hashed(MARKER, OTHER)})
        assert {i: row["v"] for i, row in by_id(copy, "stops").items()} == {1: hashed(MARKER, KEY)}
    insert(3)
    before = generation(copy)
    for one in options:
        one["mask"] = [{"column": "v", "method": "Redact"}]
    copy.document["spec"]["options"] = options
    with started(copy, OTHER):
        over(copy, dict.fromkeys((1, 2, 3), "***"))
        assert generation(copy) > before, "it was emptied before its first row was read"
        assert copy.driver.faults() == {"m.stops": "SchemaChangeUnsupported"}
    product.run(*(f"UPDATE m.{t} SET id = 4 WHERE id = 1" for t in ("stops", "evolves")))
    for one in options:
        one["where"] = "NOT id IN (2, 7)"
    with started(copy, OTHER):
        over(copy, dict.fromkeys((3, 4), "***"))
        insert(7)
        product.run("UPDATE m.evolves SET id = 5 WHERE id = 7", "UPDATE m.evolves SET id = 7 WHERE id = 3")
        over(copy, dict.fromkeys((4, 5), "***"))
        insert(8)
        over(copy, dict.fromkeys((4, 5, 8), "***"))
    for one in options:
        del one["where"]
    with started(copy, OTHER):
        over(copy, dict.fromkeys((2, 4, 5, 7, 8), "***"))
        assert copy.driver.faults() == {"m.stops": "SchemaChangeUnsupported"}
    assert found_in(tmp_path, MARKER) == []


def generation(copy: Pipeline) -> int:
    applied = copy.lake.table("m", "evolves").applied
    assert applied is not None
    return applied.generation


def over(copy: Pipeline, wanted: dict[int, str | None]) -> None:
    """The table that may start over has come to this."""
    copy.until(lambda _: {i: row["v"] for i, row in by_id(copy, "evolves").items()} == wanted, work=True)


def test_a_key_or_a_missing_column_that_is_masked_stops_its_table_before_anything_is_read(
    product: Product, tmp_path: Path, key: Path
) -> None:
    product.run(*(f"CREATE TABLE m.{t} (id int PRIMARY KEY, v varchar(60))" for t in ("keyed", "lacking", "plain")))
    mask = {"m.keyed": "id", "m.lacking": "mail"}
    options = [{"match": t, "mask": [{"column": c, "method": "Redact"}]} for t, c in mask.items()]
    copy = copy_of(product, tmp_path, options)
    with started(copy, KEY):
        level(copy)
        said = {t.schema.name: t.stopped.message for t in copy.state.tables.values() if t.stopped is not None}
    assert "options[].mask names 'id', a column of the key of m.keyed" in said["m.keyed"]
    assert "mask name columns that m.lacking does not have: ['mail']" in said["m.lacking"]
    assert by_id(copy, "plain") == {} and len(said) == 2
