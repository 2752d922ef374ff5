"""A server whose sessions begin with unusual settings, every one of them: a copy is equal all the same, and no session
of ours is in a transaction or holds a lock while it waits."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from mysql_packages import RELEASES
from servers import POSTGRES_VERSIONS
from support import mysql_shop
from support.mysql import MysqlServer
from support.pg_source import config_of, table_of, walk
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.unusual_settings import idle_sessions_hold_nothing, set_unusual, set_unusual_in_postgresql
from support.versions import turns
from tailrace import sources
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import connect


def begun(folder: Path, source: dict[str, object], include: str) -> Pipeline:
    document = document_of(
        source=source,
        tables={"include": [include]},
        target={"type": "delta", "location": (folder / "lake").as_uri()},
        storage={"location": (folder / "log").as_uri()},
        snapshot={"chunkRows": 50, "parallelism": 2},
    )
    return Pipeline(document, sources.open(Replicator.model_validate(document).spec.source, "test"), folder)


def level(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(Position(end))
    assert copy.driver.faults() == {}


@pytest.mark.parametrize("highest", turns(False, True))
@pytest.mark.parametrize("release", turns(*RELEASES))
def test_a_copy_of_mysql_is_equal_whatever_its_sessions_begin_with(release: str, highest: bool, tmp_path: Path) -> None:
    with MysqlServer(release) as server, closing(server.connect()) as usual:
        mysql_shop.create(server)
        copy = begun(tmp_path, mysql_shop.spec(server), "shop.*")
        with mysql_shop.writers(server):
            threading.Event().wait(1)
            changed = set_unusual(usual, highest)
            assert len(changed) > 90, changed
            copy.start()
            for _ in range(60):
                copy.turn()
        try:
            level(copy)
            copy.stop()
            copy.start()
            level(copy)
            assert not mysql_shop.differences(server, lambda name: copy.lake.table("shop", name).rows())
            with usual.cursor() as cursor:
                cursor.execute("SELECT id, v, n FROM shop.plain")
                there = {i: (v, n) for i, v, n in cursor.fetchall()}
            plain = {r["id"]: (r["v"], r["n"]) for r in copy.lake.table("shop", "plain").rows().to_pylist()}
            assert there and plain == there
            idle_sessions_hold_nothing(usual, [f"shop.{name}" for name in mysql_shop.TABLES])
        finally:
            copy.stop()


COLUMNS = """
id int PRIMARY KEY, n numeric, f float8, r float4, ts timestamp, tz timestamptz, d date, i interval, b bytea, x xml,
m money, j jsonb, a int[], t text, o bool, u uuid, c char(9), p point, dm "S e".dom, e "S e".en
"""
ROW = """
SELECT g, g / 7.0, g / 7.0::float8, g / 7.0::float4, timestamp '2026-02-03 04:05:06.789' + g * interval '1 h',
       timestamptz '2026-02-03 04:05:06.789+00' + g * interval '1 h', date '2026-02-03' + g, g * interval '1 h 2 s',
       decode(lpad(to_hex(g), 8, '0'), 'hex'), xml '<a>\u00e9</a>', (g * 1000.5)::numeric::money,
       jsonb_build_object('k', g, 'e', '\u00e9'), ARRAY[g, NULL, -g], E'\\\\ \u00e9 ' || g, g % 2 = 0,
       lpad(g::text, 32, '0')::uuid, g::text, point(g / 3.0, -g), (g / 3.0)::float8, 'x y'
  FROM generate_series(1, 60) g
"""


@pytest.mark.parametrize("highest", turns(False, True))
@pytest.mark.parametrize("major", turns(*POSTGRES_VERSIONS))
def test_a_copy_of_postgresql_is_equal_whatever_its_sessions_begin_with(
    major: int, highest: bool, tmp_path: Path
) -> None:
    """One table is read, and another one with the same rows comes through the log."""
    with PostgresServer(major) as server, server.connect() as usual:
        usual.execute('CREATE SCHEMA s; CREATE SCHEMA "S e"; CREATE DOMAIN "S e".dom AS float8')
        usual.execute("CREATE TYPE \"S e\".en AS ENUM ('x y')")
        for name in ("read", "logged"):
            usual.execute(f"CREATE TABLE s.{name} ({COLUMNS})".encode())
        usual.execute(f"INSERT INTO s.read {ROW}".encode())
        place = {"host": server.host, "port": server.port, "database": "postgres", "username": "postgres"}
        copy = begun(tmp_path, {"type": "postgresql", **place}, "s.*")
        changed = set_unusual_in_postgresql(usual, "postgres", "postgres", highest)
        assert len(changed) > 90, changed
        try:
            copy.start()
            level(copy)
            usual.execute(f"INSERT INTO s.logged {ROW}".encode())
            level(copy)
            usual.execute("ALTER ROLE postgres RESET ALL; ALTER DATABASE postgres RESET ALL")
            with connect(config_of(server)) as plain:
                there = by_id(walk(config_of(server), plain, table_of(plain, "s.read"), 7))
            assert len(there) == 60
            for name in ("read", "logged"):
                found = copy.lake.table("s", name).rows()
                assert by_id([{k: v for k, v in row.items() if k in there[1]} for row in found.to_pylist()]) == there
            usual.execute("SET lock_timeout = '3s'")
            waiting = usual.execute(
                "SELECT a.pid, a.state, a.query FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid()"
                " AND (a.state LIKE 'idle in transaction%' OR EXISTS (SELECT FROM pg_locks l"
                " WHERE l.pid = a.pid AND l.relation IN ('s.read'::regclass, 's.logged'::regclass)))"
            ).fetchall()
            assert not waiting
            usual.execute(
                "ALTER TABLE s.read ALTER id SET STATISTICS 7; ALTER TABLE s.logged ALTER id SET STATISTICS 7"
            )
        finally:
            copy.stop()


def by_id(rows: list[dict[str, object]]) -> dict[object, dict[str, object]]:
    return {row["id"]: row for row in rows}
