"""Tables at rest whose copies in a database somebody changes, and what a verification must find of it."""

from collections import Counter
from itertools import cycle
from random import Random

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


MARKED = "proof.marked"
"""Like the table with a key; deleted rows stay in its copy, marked."""
MARKED_TABLE = f"CREATE TABLE {MARKED} (LIKE {QUIET} INCLUDING ALL); INSERT INTO {MARKED} SELECT * FROM {QUIET};"
DELETED = f"DELETE FROM {MARKED} WHERE id IN (11, 12)"
"""In the source."""

SHAPED = "proof.shaped"
"""Like the table with a key; its copy has rows of a filter, a masked column, and one that is renamed."""
SHAPED_TABLE = f"CREATE TABLE {SHAPED} (LIKE {QUIET} INCLUDING ALL); INSERT INTO {SHAPED} SELECT * FROM {QUIET};"
SHAPED_OPTIONS = {
    "match": SHAPED,
    "where": "n >= 2",
    "mask": [{"column": "name", "method": "Truncate", "length": 6}],
}
RENAMED = (
    f"ALTER TABLE {SHAPED} RENAME COLUMN v TO amount",
    f"UPDATE {SHAPED} SET n = 0, amount = 9 WHERE id = 50",
    f"UPDATE {SHAPED} SET n = 50 WHERE id = 8",
)
"""In the source, once it is copied; one row leaves the filter, another one enters it."""
SHAPED_CHANGES = (
    f"UPDATE {SHAPED} SET amount = -1 WHERE id IN (8, 30)",
    f"UPDATE {SHAPED} SET name = 'name 31' WHERE id = 31",
    f"DELETE FROM {SHAPED} WHERE id = 60",
    f"INSERT INTO {SHAPED} (id, amount, name, n) VALUES (7, 21, 'name 7', 1), (50, 150, 'name 5', 7.14)",
)
"""In the copy: the text that the mask hides, and rows that the source has and the filter leaves out, too."""
SHAPED_FOUND = {
    ("different", "8", ("amount",)), ("different", "30", ("amount",)), ("different", "31", ("name",)),
    ("missing", "60", ()), ("extra", "7", ()), ("extra", "50", ()),
}  # fmt: skip

MANY, MANY_ROWS, PLANTS, MISSING, EXTRA = "proof.many", 3000, 1000, 150, 150
"""A table of many types; the differences that `plant_many` makes in its copy, and how many of them are rows that the
copy then lacks, or has and should not."""
COLUMNS = {
    "b": ("bool", "n % 2 = 0"),
    "i": ("int", "n * 3"),
    "l": ("bigint", "n * 10000000019"),
    "r": ("real", "n / 8.0"),
    "d": ("double precision", "n / 7.0"),
    "c": ("numeric(12,3)", "n / 7.0"),
    "t": ("text", "CASE n % 3 WHEN 0 THEN ' ü' ELSE '' END || n"),
    "raw": ("bytea", "decode(lpad(to_hex(n), 8, '0'), 'hex')"),
    "day": ("date", "date '1990-01-01' + n"),
    "tod": ("time", "time '00:00' + n * interval '1.001 s'"),
    "ts": ("timestamp", "timestamp '2020-02-29' + n * interval '1.000001 s'"),
    "tz": ("timestamptz", "timestamptz '2020-02-29 00:00+00' + n * interval '1.000001 s'"),
    "tags": ("text[]", "ARRAY[NULL, n::text]"),
    "doc": ("jsonb", "jsonb_build_object('n', n)"),
    "u": ("uuid", "lpad(to_hex(n), 32, '0')::uuid"),
}
"""Types and values, which another row has not."""
MANY_TABLE = f"""
CREATE TABLE {MANY} (id int PRIMARY KEY, {", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())});
INSERT INTO {MANY} SELECT n, {", ".join(value for _, value in COLUMNS.values())} FROM generate_series(1, {MANY_ROWS}) n;
"""
DONORS = 1000
"""The first rows stay as they are in the copy: others get their values."""


def plant_many(copy: PostgresServer | MysqlServer, random: Random) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and columns of the difference, by key: each in a row of its own, in all columns by turns."""
    rows, columns = random.sample(range(DONORS + 1, MANY_ROWS + 1), PLANTS - EXTRA), cycle(COLUMNS)
    made: dict[str, tuple[str, tuple[str, ...]]] = {}
    statements = []
    for number in rows[:MISSING]:
        statements.append(f"DELETE FROM {MANY} WHERE id = {number}")
        made[str(number)] = "missing", ()
    for number in range(MANY_ROWS + 1, MANY_ROWS + EXTRA + 1):
        donor = random.randint(1, DONORS)
        statements.append(f"INSERT INTO {MANY} SELECT {number}, {', '.join(COLUMNS)} FROM {MANY} WHERE id = {donor}")
        made[str(number)] = "extra", ()
    for number, name in zip(rows[MISSING:], columns, strict=False):
        donor = random.randint(1, DONORS)
        if random.random() < 0.2:
            statements.append(f"UPDATE {MANY} SET {name} = NULL WHERE id = {number}")
        elif name == "b":
            statements.append(f"UPDATE {MANY} SET b = NOT b WHERE id = {number}")
        elif isinstance(copy, MysqlServer):
            of_donor = f"{MANY} AS one JOIN {MANY} AS donor ON donor.id = {donor}"
            statements.append(f"UPDATE {of_donor} SET one.{name} = donor.{name} WHERE one.id = {number}")
        else:
            given = f"(SELECT {name} FROM {MANY} WHERE id = {donor})"
            statements.append(f"UPDATE {MANY} SET {name} = {given} WHERE id = {number}")
        made[str(number)] = "different", (name,)
    for statement in statements:
        _change(copy, statement)
    counts = Counter(columns[0] for kind, columns in made.values() if kind == "different")
    assert len(made) == PLANTS and counts.keys() == COLUMNS.keys() and min(counts.values()) >= 40, counts
    return made


def plant(copy: PostgresServer | MysqlServer) -> None:
    """Change the copies behind Tailrace's back."""
    for statement in CHANGES:
        _change(copy, statement)


def plant_marked(copy: PostgresServer | MysqlServer) -> None:
    """The same in the copy whose deleted rows stay, without values for the marks."""
    for statement in CHANGES:
        if QUIET in statement:
            columns = f"{MARKED} (id, v, name, n)" if statement.startswith("INSERT") else MARKED
            _change(copy, statement.replace(QUIET, columns))


def marked_equal(source: PostgresServer, copy: PostgresServer | MysqlServer) -> bool:
    """True if the rows that are not marked are the source's, and those that are were deleted there or never existed."""
    there, gone = "WHERE _is_deleted IS NOT TRUE", f"SELECT id FROM {MARKED} WHERE _is_deleted IS TRUE ORDER BY id"
    rows = f"SELECT id, v, name, n FROM {MARKED} {{}} ORDER BY id"
    wanted, ids = [*map(tuple, source.execute(rows.format("")))], [11, 12, 1000]
    if isinstance(copy, PostgresServer):
        found, marked = copy.execute(rows.format(there), dbname="copy"), copy.execute(gone, dbname="copy")
    else:
        found, marked = copy.execute(rows.format(there)), copy.execute(gone)
    return [*map(tuple, found)] == wanted and [number for (number,) in marked] == ids


def plant_shaped(copy: PostgresServer | MysqlServer) -> None:
    for statement in SHAPED_CHANGES:
        _change(copy, statement)


def shaped_equal(source: PostgresServer, copy: PostgresServer | MysqlServer) -> bool:
    """True if the copy has the rows of the filter, with the masked text in place of the source's."""
    wanted = source.execute(f"SELECT id, amount, left(name, 6), n FROM {SHAPED} WHERE n >= 2 ORDER BY id")
    query = f"SELECT id, amount, name, n FROM {SHAPED} ORDER BY id"
    found = copy.execute(query, dbname="copy") if isinstance(copy, PostgresServer) else copy.execute(query)
    return [*map(tuple, found)] == [*map(tuple, wanted)]


def _change(copy: PostgresServer | MysqlServer, statement: str) -> None:
    if isinstance(copy, PostgresServer):
        copy.execute(statement, dbname="copy")
    else:
        copy.execute(statement)


def equal(source: PostgresServer, copy: PostgresServer | MysqlServer, name: str) -> bool:
    if isinstance(copy, MysqlServer):
        return of_mysql(copy, name) == of_postgres(source, name)
    query = f"SELECT t::text FROM {name} t"
    return sorted(source.execute(query)) == sorted(source.execute(query, dbname="copy"))
