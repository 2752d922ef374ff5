"""Row filters against real servers: a condition over random rows chooses what PostgreSQL's own WHERE chooses, and plain
code; and a copy that was made while sessions wrote, and capture and driver were restarted, has the rows that the server
selects."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from demo.compare import compare_by
from support import mysql_shop
from support.mysql import MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.proof import tables
from support.proof.writers import StalledCommits, Writers
from support.resources import replicator as document_of
from tailrace import sources
from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import Replicator
from tailrace.selection.binding import bound
from tailrace.selection.conditions import Comparison, Condition, IsNull, IsTrue, Joined, Membership, Not, canonical
from tailrace.selection.rows import passing

Row = dict[str, Any]
MOMENTS = tuple(datetime(2024, 2, 28, 22 + n, microsecond=n, tzinfo=UTC) for n in range(2))
MOMENTS += tuple(moment + timedelta(hours=2) for moment in MOMENTS)
TEXTS = ("", "eu", "EU", "eu ", "é", "e\u0301", "it's", '"', "\\", "a%", "😀", "null")
POOLS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "b": ("boolean", "bool", (True, False)),
    "i": ("integer", "int32", (-(2**31), -1, 0, 1, 7, 2**31 - 1)),
    "l": ("bigint", "int64", (-(2**63), 0, 5, 2**53 + 1, 2**63 - 1)),
    "d": ("numeric(6,2)", "decimal(6,2)", tuple(map(Decimal, ("-9999.99", "-0.01", "0", "1.50", "2", "9999.99")))),
    "w": ("numeric(38,10)", "decimal(38,10)", (Decimal("1E27"), Decimal("-0.0000000001"), Decimal(3))),
    "day": ("date", "date", tuple(date(2024, 2, 28) + timedelta(days=n) for n in range(3))),
    "at": ("timestamp", "timestamp", tuple(moment.replace(tzinfo=None) for moment in MOMENTS)),
    "tz": ("timestamptz", "timestamptz", MOMENTS),
    "Text x": ("text", "string", TEXTS),
}  # fmt: skip
COLUMNS = tuple(Column(name=n, id=i, source_type=p[0], type=p[1]) for i, (n, p) in enumerate(POOLS.items(), 1))
ORDERED = ("=", "<>", "<", "<=", ">", ">=")


def written(rnd: random.Random, name: str) -> str:
    """A literal, as a person might write it."""
    _, type, pool = POOLS[name]
    value = rnd.choice(pool)
    if isinstance(value, datetime) and value.tzinfo is not None:
        zone = timezone(timedelta(minutes=rnd.choice((-210, 0, 60, 330))))
        return f"'{value.astimezone(zone).isoformat(rnd.choice(' T'))}'"
    if type in ("string", "date", "timestamp"):
        return "'" + str(value).replace("'", "''") + "'"
    return str(value)


def condition(rnd: random.Random, depth: int) -> str:
    name = rnd.choice(list(POOLS))
    column = f'"{name}"'
    kind = rnd.randrange(10 if depth else 5)
    if kind >= 7:
        word = rnd.choice((" AND ", " OR "))
        return word.join(f"({condition(rnd, depth - 1)})" for _ in range(rnd.randint(2, 3)))
    if kind >= 5:
        return f"NOT ({condition(rnd, depth - 1)})"
    if kind == 0:
        return f"{column} IS {rnd.choice(('', 'NOT '))}NULL"
    if kind == 1:
        values = ", ".join(written(rnd, name) for _ in range(rnd.randint(1, 3)))
        return f"{column} {rnd.choice(('', 'NOT '))}IN ({values})"
    if kind == 2 and name == "b":
        return column
    if kind == 2 and name != "Text x":
        return f"{column} {rnd.choice(('', 'NOT '))}BETWEEN {written(rnd, name)} AND {written(rnd, name)}"
    operators = ("=", "<>", "!=") if name in ("b", "Text x") else ORDERED
    operator, literal = rnd.choice(operators), written(rnd, name)
    return f"{column} {operator} {literal}" if rnd.random() < 0.8 else f"{literal} {operator} {column}"


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b), "<>": lambda a, b: bool(a != b), "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b), ">": lambda a, b: bool(a > b), ">=": lambda a, b: bool(a >= b),
}  # fmt: skip


def truth(condition: Condition, row: Row) -> bool | None:
    """Three-valued, as SQL's standard has it."""
    match condition:
        case IsNull(column):
            return row[column] is None
        case IsTrue(column):
            return bool(row[column]) if row[column] is not None else None
        case Comparison(column, operator, value):
            return None if row[column] is None else COMPARE[operator](row[column], value)
        case Membership(column, values):
            return None if row[column] is None else any(row[column] == value for value in values)
        case Not(inner):
            found = truth(inner, row)
            return None if found is None else not found
        case Joined(word, parts):
            decisive, all_of = word == "OR", [truth(part, row) for part in parts]
            return decisive if decisive in all_of else None if None in all_of else not decisive


@pytest.mark.postgres(18)
def test_a_condition_lets_the_rows_pass_that_postgresql_selects(postgres: PostgresServer) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    rows: list[Row] = [{n: rnd.choice((None, *p[2])) for n, p in POOLS.items()} for _ in range(150)]
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in COLUMNS])
    batch = pa.RecordBatch.from_pylist(rows, schema)
    chosen = set[int]()
    with postgres.connect(autocommit=True) as connection:
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        types = ", ".join(f'"{name}" {pool[0]}' for name, pool in POOLS.items())
        connection.execute(f"CREATE TABLE t (number int, {types})")
        marks = ", ".join(["%s"] * (len(POOLS) + 1))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO t VALUES ({marks})", [(i, *r.values()) for i, r in enumerate(rows)])
        for _ in range(200):
            text = condition(rnd, 3)
            where = canonical(bound(text, COLUMNS))
            assert canonical(bound(where, COLUMNS)) == where, text
            mine = pa.array(range(len(rows))).filter(passing(batch, where, COLUMNS)).to_pylist()
            for sql in (text, where):
                found = connection.execute(f"SELECT number FROM t WHERE {sql} ORDER BY 1").fetchall()
                assert mine == [row[0] for row in found], (text, sql)
            assert mine == [i for i, row in enumerate(rows) if truth(bound(text, COLUMNS), row) is True], text
            chosen.add(len(mine))
    assert len(chosen) > 30


PROOF = {
    "proof.single": "v < 1200000000 AND big IS NOT NULL OR id BETWEEN 20 AND 40",
    "proof.composite": "(at >= '2020-01-01 00:00:00+00:00' OR v IS NULL) AND NOT a IN (2, 5)",
}
"""By keys, by columns that change, and by one that the log does not carry while it does not change."""
SHOP = {
    "plain": "n > 0 AND v <> '' OR id BETWEEN 20 AND 40",
    "typed": "e = 'x' OR d < 0 AND NOT y IN (2000, 2001) AND dt < '5000-01-01 00:00:00'",
}


def copy_of(
    source: dict[str, Any], schema: str, where: dict[str, str], folder: Path, chunk_rows: int | None = 40
) -> Pipeline:
    document = document_of(
        source=source,
        tables={"include": [f"{schema}.*"]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"parallelism": 2} | ({} if chunk_rows is None else {"chunkRows": chunk_rows}),
        options=[{"match": table, "where": condition} for table, condition in where.items()],
    )
    return Pipeline(document, sources.open(Replicator.model_validate(document).spec.source, "test"), folder)


def work(copy: Pipeline) -> None:
    for turn in range(100):
        copy.turn()
        if turn % 40 == 20:
            copy.stop()
            copy.start()


def settle(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(end)
    assert copy.driver.faults() == {}


@pytest.mark.postgres(18)
def test_a_copy_of_postgresql_has_the_rows_that_it_selects(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.connect() as connection:
        tables.create(connection, 150, seed=3)
    writers, stalls = Writers(postgres.connect, count=3, keys=300, seed=3), StalledCommits(postgres.connect, 3)
    copy = copy_of(postgres.source(), "proof", PROOF, tmp_path)
    writers.start()
    stalls.start()
    with copy.running():
        work(copy)
        writers.stop()
        stalls.stop()
        settle(copy)
        with postgres.connect() as connection:
            names = [f"proof.{table.name}" for table in tables.TABLES]
            found = compare_by(connection, names, lambda s, t: copy.lake.table(s, t).rows(), PROOF)
        assert not found, "\n".join(found)
        assert copy.lake.table("proof", "single").rows().num_rows > 0


def test_a_copy_of_mysql_has_the_rows_that_it_selects(mysql: MysqlServer, tmp_path: Path) -> None:
    mysql_shop.create(mysql)
    with mysql_shop.writers(mysql):
        copy = copy_of(mysql_shop.spec(mysql), "shop", {f"shop.{t}": text for t, text in SHOP.items()}, tmp_path)
        with copy.running():
            work(copy)
    with copy.running():
        settle(copy)
        assert not mysql_shop.differences(mysql, lambda name: copy.lake.table("shop", name).rows(), where=SHOP)
        assert copy.lake.table("shop", "plain").rows().num_rows > 0


@pytest.mark.postgres(18)
def test_a_filter_that_keeps_few_rows_or_none_does_not_shrink_the_chunks(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Chunks had eight rows after a while, and the first copy of a large table never ended."""
    postgres.execute("CREATE SCHEMA shop")
    for name in ("few", "none", "whole"):
        postgres.execute(f"CREATE TABLE shop.{name} (id int PRIMARY KEY, n int)")
        postgres.execute(f"ALTER TABLE shop.{name} REPLICA IDENTITY FULL")
        postgres.execute(f"INSERT INTO shop.{name} SELECT n, n % 50 FROM generate_series(1, 100000) n")
        postgres.execute(f"ANALYZE shop.{name}")
    copy = copy_of(postgres.source(), "shop", {"shop.few": "n = 0", "shop.none": "n > 50"}, tmp_path, None)
    with copy.running():
        settle(copy)
        for where in ("n % 50 = 7", "n < 0"):
            copy.ask("shop.whole", where=where)
            settle(copy)
        done = [part for known in copy.state.snapshots.values() for part in known.tables.values()]
        assert len(done) == 5 and all(part.finished and part.chunks_done <= 8 for part in done), done
        assert [copy.lake.table("shop", name).rows().num_rows for name in ("few", "none")] == [2000, 0]
