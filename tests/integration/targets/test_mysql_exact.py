"""From MySQL into MySQL, and from MariaDB into MariaDB, every type arrives as itself: compared by the server's own
text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.database_copies import begin, place_of, settle
from support.mysql import MARIADB_NEWEST, MYSQL, TARGETS, MysqlServer
from support.mysql_values import ONLY_VALUES, VALUES
from support.versions import one_of, turns
from tailrace import targets

ONLY_HERE = {
    "date": ["'0000-00-00'", "'2020-00-00'", "'2021-02-31'", "'0000-01-01'"],
    "datetime(6)": ["'0000-00-00 00:00:00.000000'", "'2021-02-31 23:00:00.5'"],
    "timestamp(6) NULL DEFAULT NULL": ["'0000-00-00 00:00:00'", "'2001-09-09 01:46:40.123456'"],
    "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP": ["'2001-09-09 01:46:40'"] * 9,
    "varchar(20) CHARACTER SET latin1 COLLATE latin1_german1_ci": ["'Strasse  '", "'\u00e9'"],
    "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": ["'\u00c4'", "'a'", "'A '"],
    "tinytext CHARACTER SET gbk": ["'\u4e2d'"],
    "mediumtext": ["repeat('\u20ac', 30000)"],
    "longblob": ["repeat(x'00ff', 40000)"],
    "geometry": ["ST_GeomFromText('POINT(1 2)', 4326)", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(0.1 -2))')"],
    "point": ["ST_GeomFromText('POINT(1e-300 -0)')"],
    "polygon": ["ST_GeomFromText('POLYGON((0 0,10 0,10 10,0 10,0 0),(1 1,2 1,2 2,1 2,1 1))')"],
    "geometrycollection": ["ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')"],
    "enum('it''s','a\\\\b','c,d')": ["1", "2", "3", "0"],
    f"enum({','.join(repr(f'label number {n}') for n in range(90))})": ["'label number 89'"],
}
"""Values that the types of a lake do not have, and more types."""
OF_MYSQL = {
    "json": [
        "JSON_OBJECT('it''s', 1.50, 'b', JSON_ARRAY(-0.10, 99999999999999999999, 1e300, 0.1e0, true, null, 'x\\\\ny'))",
        "CAST(0.00 AS JSON)",
        "JSON_ARRAY(CAST('2020-01-02 03:04:05' AS datetime(6)), 18446744073709551615, 0.00001e0, 12.0e0)",
    ],
    "vector(3)": ["STRING_TO_VECTOR('[1,2,-0.5]')"],
}
OF_MARIADB = {
    "uuid": ["'123e4567-e89b-12d3-a456-426614174000'"],
    "inet4": ["'192.0.2.1'"],
    "inet6": ["'2001:db8::ff00:42:8329'"],
    "json": ['\'{"b": 1,   "a": [1.50, 1e2]}\''],
}
KEYS = ("date", "timestamp(3) NOT NULL", "varchar(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "bit(9)",
        "decimal(65,30)", "enum('b','a')", "varbinary(9)")  # fmt: skip
KEY_ROWS = (
    "'0000-00-00', '0000-00-00 00:00:00', 'a', 1, 1.5, 'b', x'00'",
    "'2021-02-31', '2001-09-09 01:46:40.125', 'B ', 511, -0.000000000000000000000000000001, 'a', ''",
    "'9999-12-31', '2038-01-19 03:14:07.999', '\u00e9', 0, 0, 'b', x'00ff'",
)
NO_TEXT = ("vector", "geometry", "point", "polygon")
"""Types whose values a server does not show as text."""


@pytest.fixture(scope="module")
def server() -> Iterator[MysqlServer]:
    with MysqlServer(one_of(TARGETS, __name__), sql_mode="ALLOW_INVALID_DATES", default_time_zone="+05:00") as running:
        yield running


def written(server: MysqlServer, *statements: str) -> None:
    server.script("SET time_zone = '+00:00'", *statements, charset="utf8mb4")


def definitions(server: MysqlServer, schema: str, table: str) -> list[tuple[str, ...]]:
    """Types as the server tells them, with character set and collation."""
    found = server.execute(
        "SELECT column_name, column_type, character_set_name, collation_name, ordinal_position"
        " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        [schema, table],
    )
    return [tuple(map(str, row)) for row in found]


def values(server: MysqlServer) -> dict[str, list[str]]:
    is_mysql = server.execute("SELECT VERSION() LIKE '%%MariaDB%%'") == [(0,)]
    kinds = {kind: VALUES.get(kind, []) + ONLY_VALUES.get(kind, []) for kind in [*VALUES, *ONLY_VALUES]}
    own = OF_MYSQL if is_mysql else OF_MARIADB
    more = {kind: found for kind, found in own.items() if kind != "json"} | ONLY_HERE
    merged = {kind: kinds.get(kind, []) + more.get(kind, []) for kind in [*kinds, *more]}
    merged["json"] = merged["json"] + own["json"] if is_mysql else own["json"]
    return merged


def texts(server: MysqlServer, name: str, column: str, order: str, kind: str = "") -> list[tuple[object, ...]]:
    """The server's text and its bytes."""
    text = "NULL" if kind.startswith(NO_TEXT) else f"CAST({column} AS char CHARACTER SET utf8mb4)"
    statement = f"SELECT {text}, HEX({column}) FROM {name} ORDER BY"
    return server.execute(f"{statement} {order}", init_command="SET time_zone = '+00:00'", charset="utf8mb4")


@pytest.mark.timeout(300)
def test_every_type_arrives_as_itself_by_the_log_and_by_chunks(server: MysqlServer, tmp_path: Path) -> None:
    kinds = values(server)
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    server.script(
        "CREATE DATABASE shop CHARACTER SET latin1",
        f"CREATE TABLE shop.everything (id int PRIMARY KEY, {columns}, g int AS (id + 1), s int AS (id + 2) STORED)",
        f"CREATE TABLE shop.named ({', '.join(f'k{i} {kind}' for i, kind in enumerate(KEYS))}, n int, PRIMARY KEY"
        f" ({', '.join(f'k{i}' for i in range(len(KEYS)))}))",
    )
    names = ", ".join(["id", *(f"c{i}" for i in range(len(kinds)))])
    rows = [[v[n] if n < len(v) else "DEFAULT" for v in kinds.values()] for n in range(max(map(len, kinds.values())))]

    def insert(first: int) -> None:
        listed = ", ".join(f"({first + i}, {', '.join(row)})" for i, row in enumerate(rows))
        keys = ", ".join(f"({row}, {first})" for row in KEY_ROWS[first // 500 :: 2])
        written(
            server, f"INSERT INTO shop.everything ({names}) VALUES {listed}", f"INSERT INTO shop.named VALUES {keys}"
        )

    insert(0)
    copy = begin(place_of(server), server, tmp_path, schema="copies")
    copy.start()
    settle(copy)
    insert(500)
    written(
        server, "UPDATE shop.everything SET c0 = 1 WHERE id < 503", "UPDATE shop.named SET n = n + 1, k2 = upper(k2)"
    )
    settle(copy)
    wanted = [one for one in definitions(server, "shop", "everything") if one[0] not in ("g", "s")]
    assert definitions(server, "copies", "everything") == wanted
    assert definitions(server, "copies", "named") == definitions(server, "shop", "named")
    for at, kind in enumerate(kinds):
        here, there = (texts(server, f"{schema}.everything", f"c{at}", "id", kind) for schema in ("shop", "copies"))
        assert here == there, kind
    assert len(there) == 2 * len(rows)
    for column in (*(f"k{i}" for i in range(len(KEYS))), "n"):
        here, there = (texts(server, f"{schema}.named", column, "k2, k3") for schema in ("shop", "copies"))
        assert here == there and len(there) == len(KEY_ROWS), column
    copy.stop()


PAIRS = ((MYSQL, MARIADB_NEWEST), (MARIADB_NEWEST, MYSQL), (MYSQL, "mariadb-10.11"))
BINARY = re.compile("bit|.*blob|.*binary|geometry|point|polygon|vector")
"""Types that are compared by their bytes; a number's depend on the server's way to round it."""
LACKED = {
    (MYSQL, MARIADB_NEWEST): {"json"},
    (MYSQL, "mariadb-10.11"): {"json", "vector(3)"},
    (MARIADB_NEWEST, MYSQL): {"uuid", "inet4", "inet6", "char(3) CHARACTER SET utf16", "text CHARACTER SET ucs2"},
}
"""Types, character sets or collations that the target does not have: they arrive by the general table."""
SPELLED = re.compile(r"((?:big|medium|tiny)?int|year)\(\d+\)|geom(?=collection)")


def spelled(definition: tuple[str, ...]) -> tuple[str, ...]:
    """A type in both products' words."""
    kind, *more = definition
    return SPELLED.sub(lambda found: found[1] or "geometry", kind), *more


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("source", "target"), turns(*PAIRS))
def test_between_mysql_and_mariadb_types_arrive_as_themselves_where_the_target_has_them(
    source: str, target: str, tmp_path: Path
) -> None:
    lenient = {"sql_mode": "ALLOW_INVALID_DATES", "default_time_zone": "+05:00"}
    with MysqlServer(source, **lenient) as here, MysqlServer(target, **lenient) as there:
        kinds = values(here)
        columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
        here.script("CREATE DATABASE shop CHARACTER SET latin1", f"CREATE TABLE shop.t (id int PRIMARY KEY, {columns})")
        count = max(map(len, kinds.values()))
        rows = [", ".join(v[n] if n < len(v) else "DEFAULT" for v in kinds.values()) for n in range(count)]
        written(here, f"INSERT INTO shop.t VALUES {', '.join(f'({i}, {row})' for i, row in enumerate(rows))}")
        copy = begin(place_of(here), there, tmp_path)
        with copy.running():
            copy.until(lambda state: (state.tables and copy.driver.level(state)) or copy.driver.faults(), work=True)
            settle(copy)
            written(here, f"INSERT INTO shop.t VALUES {', '.join(f'(100 + {i}, {row})' for i, row in enumerate(rows))}")
            settle(copy)
        own, got = ({one[0]: spelled(one[1:4]) for one in definitions(server, "shop", "t")} for server in (here, there))
        others = {kind for at, kind in enumerate(kinds) if own[f"c{at}"] != got[f"c{at}"]}
        assert others == LACKED[source, target]
        for at, kind in enumerate(kinds):
            found, copied = (texts(server, "shop.t", f"c{at}", "id", kind) for server in (here, there))
            form = 1 if BINARY.match(kind) or kind.endswith("binary") else 0
            if there.mariadb and kind in ("float", "double"):  # it has no -0.0
                found = [("0" if one == "-0" else one, two) for one, two in found]
            assert [one[form] for one in copied] == [one[form] for one in found], kind


@pytest.mark.timeout(300)
def test_statements_give_a_copy_what_the_source_has(server: MysqlServer, tmp_path: Path) -> None:
    server.script(
        "CREATE DATABASE store CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "CREATE TABLE store.kind (id int PRIMARY KEY)",
        "CREATE TABLE store.item (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, kind int DEFAULT 3,"
        " name varchar(20) NOT NULL DEFAULT 'it''s DEFAULT' COMMENT 'of (it)', state enum('a,b', 'c') DEFAULT 'c',"
        " at timestamp NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, twice int AS (kind * 2) STORED,"
        " more int AS (twice + 1), note text, KEY by_name (name(5), kind), UNIQUE KEY once (kind, id), KEY (twice),"
        " FULLTEXT KEY words (note), CONSTRAINT of_kind FOREIGN KEY (kind) REFERENCES store.kind (id),"
        " CONSTRAINT few CHECK (kind < 100))",
        "INSERT INTO store.kind VALUES (3)",
        "INSERT INTO store.item (note) VALUES ('x')",
    )
    copy = begin(place_of(server), server, tmp_path, schema="shown", include="store.*")
    copy.start()
    settle(copy)
    target = targets.open(copy.replicator.spec.target, "mysql")
    names = [("store", "item"), ("store", "kind")]
    with copy.source.session() as session:
        extras = session.extras(names)
    schemas = [table.schema for table in copy.driver.journal.state.tables.values()]
    lacked = target.lacked(extras, schemas)
    assert set(lacked) == {"store.item"}
    for statement in lacked["store.item"]:
        server.execute(statement, autocommit=True)
    assert target.lacked(extras, schemas) == {}
    server.execute("UPDATE store.item SET note = 'changed', kind = NULL", autocommit=True)
    server.execute("INSERT INTO store.item (name) VALUES ('second')", autocommit=True)
    settle(copy)
    copy.stop()
    rows = "SELECT id, kind, name, state, at, twice, more, note FROM {}.item ORDER BY id"
    assert server.execute(rows.format("shown")) == server.execute(rows.format("store"))
    server.execute("INSERT INTO shown.item (kind) VALUES (3)", autocommit=True)
    assert server.execute("SELECT id, name, state, more FROM shown.item ORDER BY id DESC LIMIT 1") == [
        (3, "it's DEFAULT", "c", 7)
    ]
