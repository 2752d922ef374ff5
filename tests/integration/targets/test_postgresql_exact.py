"""From PostgreSQL into PostgreSQL every type arrives as itself: compared by the server's own text."""

from pathlib import Path

import pytest

from support.database_copies import begin, settle
from support.pg_values import TYPES, VALUES
from support.postgres import PostgresServer

ONLY_HERE = {
    "numeric(10,2)": ["NaN"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    "timestamp": ["infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00"],
    "public.positive": ["NaN"],
    "public.day": ["infinity"],
    "public.mood[]": ['{sad,"o\'k",NULL}'],
    "public.hstore": ['"a"=>"1", "b"=>NULL'],
    "public.lengths": ["[1.5,2.5)"],
    "date[]": ["{infinity,0044-03-15 BC}"],
    "bit varying(5)[]": ["{101,NULL}"],
    "box": ["(1,1),(0,0)"],
    "tsquery": ["'a' & 'b'"],
    "jsonpath": ['$."a"[*]'],
    "datemultirange": ["{[2020-01-01,2020-02-01)}"],
    "txid_snapshot": ["10:20:10,14"],
    "interval day to second(3)": ["1 day 00:00:01.5"],
}
"""Values of which the lake's types cannot hold some."""
MADE = (
    f"{TYPES}; CREATE EXTENSION hstore SCHEMA public; CREATE TYPE public.lengths AS RANGE (subtype = numeric);"
    " CREATE DOMAIN public.day AS date"
)
OTHERS = {"regclass": "text", '"char"': "text", "positive": "numeric(12,3)", "day": "date"}
"""Columns that get another type; domains the one behind them."""


def values(major: int) -> dict[str, list[str]]:
    found = {kind: VALUES.get(kind, []) + ONLY_HERE.get(kind, []) for kind in [*VALUES, *ONLY_HERE]}
    if major >= 15:
        found |= {"numeric(3,-2)": ["12300"], "numeric(2,4)": ["0.0012"]}
    return found | {"regclass": ["pg_class"]}


def types_of(server: PostgresServer, dbname: str) -> list[str]:
    statement = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'shop.everything'::regclass AND attnum > 0 ORDER BY attnum"
    )
    return [kind for (kind,) in server.execute(statement, dbname=dbname)]


@pytest.mark.timeout(300)
def test_every_type_arrives_as_itself_by_the_log_and_by_chunks(postgres: PostgresServer, tmp_path: Path) -> None:
    kinds = values(postgres.major)
    postgres.execute("CREATE DATABASE copy")
    for dbname in ("postgres", "copy"):
        postgres.execute(MADE, dbname=dbname)
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    postgres.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.everything (id date PRIMARY KEY, {columns})")
    rows = [[found[n] if n < len(found) else None for found in kinds.values()] for n in range(8)]
    marks = ", ".join(["%s"] * (len(kinds) + 1))

    def insert(first: int) -> None:
        with postgres.connect() as connection:
            for number, row in enumerate(rows):
                day = f"{first + number:04}-01-01 BC" if first + number else "infinity"
                connection.execute(f"INSERT INTO shop.everything VALUES ({marks})".encode(), [day, *row])
            connection.commit()

    insert(0)
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    insert(len(rows))
    postgres.execute("UPDATE shop.everything SET c0 = NOT c0 WHERE id < '0003-01-01 BC' OR id = 'infinity'")
    settle(copy)
    for column in ("id", *(f"c{i}" for i in range(len(kinds)))):
        statement = f"SELECT id::text, {column}::text FROM shop.everything ORDER BY id"
        here, there = (postgres.execute(statement, dbname=dbname) for dbname in ("postgres", "copy"))
        assert here == there, kinds.get(column)
    assert len(there) == 2 * len(rows)
    expected = [OTHERS.get(kind, kind) for kind in types_of(postgres, "postgres")]
    assert types_of(postgres, "copy") == expected
    copy.stop()


@pytest.mark.timeout(300)
def test_a_type_that_is_another_one_in_the_target_is_told(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE TYPE public.mood AS ENUM ('sad', 'glad')")
    postgres.execute("CREATE TYPE public.mood AS ENUM ('sad')", dbname="copy")
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.person (id int PRIMARY KEY, mood public.mood)")
    copy = begin(postgres.source(), postgres, tmp_path)
    copy.start()
    settle(copy)
    postgres.execute("INSERT INTO shop.person VALUES (1, 'sad'), (2, 'glad')")
    copy.until(lambda _: copy.driver.faults(), work=True)
    (told,) = [table.fault for table in copy.driver.control.status().tables]
    assert told is not None and "'mood' has a value that its type in the target does not take" in told.message
    postgres.execute("ALTER TYPE public.mood ADD VALUE 'glad'", dbname="copy")
    settle(copy)
    assert postgres.execute("SELECT mood::text FROM shop.person ORDER BY id", dbname="copy") == [("sad",), ("glad",)]
    copy.stop()


@pytest.mark.timeout(300)
def test_keys_that_travel_as_text_are_read_in_chunks_in_the_order_of_their_type(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """As texts they have another order: years BC fall, 10 stands before 9, and infinity behind all."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.day (day date, price numeric(9,2), n int, PRIMARY KEY (day, price));"
        " INSERT INTO shop.day SELECT '0010-01-01 BC'::date + 400 * (g / 3), (g % 3) * 5 - 5, g"
        " FROM generate_series(1, 90) g;"
        " INSERT INTO shop.day VALUES ('infinity', 'NaN', 1), ('-infinity', 10, 1), ('12020-01-01', 9, 1)"
    )
    copy = begin(postgres.source(), postgres, tmp_path, chunk_rows=7)
    copy.start()
    settle(copy)
    rows = "SELECT day::text, price::text, n FROM shop.day ORDER BY day, price"
    assert postgres.execute(rows, dbname="copy") == postgres.execute(rows)
    postgres.execute("UPDATE shop.day SET n = n + 1, price = price + 1; DELETE FROM shop.day WHERE n % 7 = 0")
    copy.ask("shop.day", chunkRows=7)
    settle(copy)
    snapshots = copy.driver.journal.state.snapshots.values()
    assert min(table.chunks_done for snapshot in snapshots for table in snapshot.tables.values()) > 10
    assert postgres.execute(rows, dbname="copy") == postgres.execute(rows) != []
    copy.stop()
