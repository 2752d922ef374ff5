"""Tables at rest whose copies in a database somebody changes, and what a verification must find of it."""

from support.database_copies import of_mysql, of_postgres
from support.mysql import MysqlServer
from support.postgres import PostgresServer

ROWS = 120
"""Rows of each table."""
QUIET, KEYLESS = "proof.quiet", "proof.keyless"
TABLES = f"""
CREATE TABLE {QUIET} (id int PRIMARY KEY, v bigint, name text, n numeric(10,2));
INSERT INTO {QUIET} SELECT n, n * 3, 'name ' || n, n / 7.0 FROM generate_series(1, {ROWS}) n;
CREATE TABLE {KEYLESS} (v int, name text);
ALTER TABLE {KEYLESS} REPLICA IDENTITY FULL;
INSERT INTO {KEYLESS} SELECT n % 10, 'name ' || n % 3 FROM generate_series(1, {ROWS}) n;
"""
CHANGES = (
    f"UPDATE {QUIET} SET v = -1 WHERE id IN (3, 40)",
    f"UPDATE {QUIET} SET name = NULL, n = 1.5 WHERE id = 77",
    f"DELETE FROM {QUIET} WHERE id IN (5, 119)",
    f"INSERT INTO {QUIET} VALUES (1000, 1, 'nobody', 1)",
    f"INSERT INTO {KEYLESS} VALUES (4, 'nobody'), (3, 'name 0')",
    f"DELETE FROM {KEYLESS} WHERE v = 7 AND name = 'name 1'",
)
FOUND = {
    ("different", "3", ("v",)), ("different", "40", ("v",)), ("different", "77", ("n", "name")),
    ("missing", "5", ()), ("missing", "119", ()), ("extra", "1000", ()),
}  # fmt: skip
"""The differences of the table with a key: kind, key, columns."""
LOST, TWICE = 4, 2
"""Rows without a key that were deleted, and that are there once too often."""
_ONE = f"SELECT min(ctid) FROM {KEYLESS} WHERE v = 7 AND name = 'name 1'"
LACKED = f"DELETE FROM {KEYLESS} WHERE ctid = ({_ONE})"
"""In the source: a row without a key that the copy lacks, so that its table stops."""


def plant(copy: PostgresServer | MysqlServer) -> None:
    """Change the copies behind Tailrace's back."""
    for statement in CHANGES:
        if isinstance(copy, PostgresServer):
            copy.execute(statement, dbname="copy")
        else:
            copy.execute(statement)


def equal(source: PostgresServer, copy: PostgresServer | MysqlServer, name: str) -> bool:
    if isinstance(copy, MysqlServer):
        return of_mysql(copy, name) == of_postgres(source, name)
    query = f"SELECT t::text FROM {name} t"
    return sorted(source.execute(query)) == sorted(source.execute(query, dbname="copy"))
