"""The proving harness's tables: few keys and hard columns, so that random writers meet each other all the time."""

from dataclasses import dataclass
from random import Random

import psycopg
from psycopg import sql

BIG = 2600
"""Length of a value that PostgreSQL moves out of the row (`STORAGE EXTERNAL`): an update leaves it unchanged."""

DDL = """
CREATE TABLE proof.single (id int PRIMARY KEY, v bigint, big text, big2 text, n numeric(12,3));
ALTER TABLE proof.single ALTER big SET STORAGE EXTERNAL, ALTER big2 SET STORAGE EXTERNAL;
CREATE TABLE proof.composite (a int, b text, v bigint, big text, at timestamptz, PRIMARY KEY (a, b));
ALTER TABLE proof.composite ALTER big SET STORAGE EXTERNAL;
CREATE TABLE proof.typed (id uuid PRIMARY KEY, flag bool, small smallint, v bigint, f float8, n numeric, d date,
    ts timestamp, tz timestamptz, raw bytea, doc jsonb, tags text[], span int4range, c char(5), big text);
ALTER TABLE proof.typed ALTER big SET STORAGE EXTERNAL;
"""


@dataclass(frozen=True)
class ProofTable:
    """One table: how to address a random key and how to fill its columns."""

    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    bigs: tuple[str, ...]

    def key(self, number: int) -> tuple[object, ...]:
        if self.name == "single":
            return (number,)
        if self.name == "composite":
            return (number % 7, "aBé_ß"[number % 5] * (1 + number % 3) + str(number))
        return (f"00000000-0000-4000-8000-{number * 7919:012d}",)

    def value(self, column: str, random: Random) -> object:
        if column in self.bigs:
            return None if random.random() < 0.05 else f"{random.random()}".ljust(BIG, "x")
        return _value(column, random)

    def where(self) -> sql.Composed:
        return sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(k)) for k in self.keys)

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier("proof", self.name)


def _value(column: str, random: Random) -> object:
    if random.random() < 0.08:
        return None
    number = random.randrange(1 << 31)
    choices: dict[str, object] = {
        "v": number,
        "n": f"{number % 100000}.{number % 997:03d}",
        "at": f"20{number % 30 + 10}-0{number % 9 + 1}-11 10:11:12.{number % 1000000:06d}+00",
        "flag": number % 2 == 0,
        "small": number % 30000,
        "f": random.choice([random.random() * 1e30, 1 / 3, -0.0, 1e-300, float("inf")]),
        "d": f"{number % 2000 + 1000}-02-28",
        "ts": f"{number % 2000 + 1000}-06-30 23:59:59.999999",
        "tz": f"{number % 100 + 1950}-03-31 01:30:00.000001+02",
        "raw": bytes([number % 256, 0, 255, 92]),
        "doc": f'{{"b": [1, 2.50, null], "a": "\\u00e9{number}"}}',
        "tags": ["a,b", 'q"uote', "", str(number)],
        "span": f"[{number % 100},{number % 100 + 5})",
        "c": "é" if number % 2 else "ab ",
    }
    return choices[column]


TABLES = (
    ProofTable("single", ("id",), ("v", "n"), ("big", "big2")),
    ProofTable("composite", ("a", "b"), ("v", "at"), ("big",)),
    ProofTable(
        "typed", ("id",), ("flag", "small", "v", "f", "n", "d", "ts", "tz", "raw", "doc", "tags", "span", "c"), ("big",)
    ),
)


def create(connection: psycopg.Connection, rows: int, seed: int) -> None:
    """Make schema `proof` and fill each table with `rows` of the keys 0 … 2·rows."""
    random = Random(seed)
    connection.execute("CREATE SCHEMA proof")
    connection.execute(DDL)
    for table in TABLES:
        for number in random.sample(range(2 * rows), rows):
            insert(connection, table, table.key(number), random)


def insert(connection: psycopg.Connection, table: ProofTable, key: tuple[object, ...], random: Random) -> None:
    columns = table.keys + table.values + table.bigs
    values = key + tuple(table.value(c, random) for c in table.values + table.bigs)
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
            table.identifier,
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.SQL("%s") for _ in columns),
        ),
        values,
    )
