"""A proof table without a key, and writers that make its rows equal, tell them apart, and take single ones of them."""

from random import Random

import psycopg
from psycopg import sql
from typing_extensions import override

from support.proof.writers import Connect, Writers, _has_slot

NAME = "proof.keyless"
DDL = """
CREATE TABLE proof.keyless (v int, f float8, r real, n numeric, t text, doc jsonb, raw bytea, at timestamptz, big text);
ALTER TABLE proof.keyless ALTER big SET STORAGE EXTERNAL;
ALTER TABLE proof.keyless REPLICA IDENTITY FULL;
"""
POOLS: dict[str, tuple[object, ...]] = {
    "v": (None, 0, 1, 2),
    "f": (None, 0.0, -0.0, float("nan"), 0.1),
    "r": (None, float("nan"), -0.0, 0.5),
    "n": (None, "NaN", "0", "0.0", "1.50"),
    "t": (None, "", "a", "A", "é", "null"),
    "doc": (None, '{"a": 1}', '{"a": 1.0}', "null"),
    "raw": (None, b"", b"\x00n;"),
    "at": (None, "2024-02-29 12:00:00.000001+00"),
    "big": (None, "x" * 2600, "y" * 2600),
}
"""Few values, so that many rows are equal; and such as are equal to each other by some operator and not the same."""
COLUMNS = sql.SQL(", ").join(map(sql.Identifier, POOLS))
FILL = sql.SQL("INSERT INTO proof.keyless ({}) VALUES ({})").format(
    COLUMNS, sql.SQL(", ").join(sql.SQL("%s") for _ in POOLS)
)


def row(random: Random) -> list[object]:
    """Mostly one of a few whole rows."""
    if random.random() < 0.7:
        random = Random(random.randrange(6))
    return [random.choice(pool) for pool in POOLS.values()]


def create(connection: psycopg.Connection, rows: int, seed: int) -> None:
    """In schema `proof`, which is there."""
    random = Random(seed)
    connection.execute(DDL)
    for _ in range(rows):
        connection.execute(FILL, row(random))


class KeylessWriters(Writers):
    """Threads that write at random into the table, and empty it now and then."""

    def __init__(self, connect: Connect, *, count: int, seed: int, pause: float = 0.01) -> None:
        super().__init__(connect, count=count, keys=0, seed=seed, pause=pause)

    @override
    def _change(self, connection: psycopg.Connection, random: Random) -> None:
        if random.random() < 0.3:
            # Visible before those that stall, and behind them in the log.
            connection.execute("SET LOCAL synchronous_commit = local")
        kind = random.random()
        if kind < 0.35:
            with connection.cursor() as cursor:
                cursor.executemany(FILL, [row(random)] * random.choice((1, 1, 2, 5)))
        elif kind < 0.6:
            connection.execute(b"DELETE FROM proof.keyless WHERE ctid = ANY (" + _some(random) + b")")
        elif kind < 0.64:
            connection.execute("DELETE FROM proof.keyless WHERE v = %s AND random() < 0.1", (random.randrange(3),))
        else:
            column = random.choice([*POOLS])
            change = sql.SQL("UPDATE proof.keyless SET {} = %s WHERE ctid = ANY ({})")
            some = sql.SQL(_some(random).decode())
            connection.execute(change.format(sql.Identifier(column), some), (random.choice(POOLS[column]),))

    @override
    def _transaction(self, connection: psycopg.Connection, random: Random) -> None:
        if random.random() < 0.01 and _has_slot(connection):
            with connection.transaction():
                self._change(connection, random)
                connection.execute("TRUNCATE proof.keyless")
                self._change(connection, random)
        else:
            super()._transaction(connection, random)


def _some(random: Random) -> bytes:
    """One row, or a few."""
    few = random.choice((1, 1, 1, 3))
    return f"SELECT ctid FROM proof.keyless ORDER BY random() LIMIT {few} FOR UPDATE SKIP LOCKED".encode()
