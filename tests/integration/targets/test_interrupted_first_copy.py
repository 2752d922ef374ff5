"""A first copy whose rows are loaded straight into the copy (`targets.sql.loaded`): what happens meanwhile in the
source and in the target's server. Each time the copy becomes what the source is."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from support.database_copies import begin, settle
from support.postgres import PostgresServer
from support.versions import turns
from support.waiting import until
from tailrace import targets
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.databases.postgresql import connect
from tailrace.errors import TargetRefused
from tailrace.targets.sql.chunk_writer import Arriving, ArrivingSent, ArrivingValues
from tailrace.targets.sql.pool import SessionPool
from tailrace.targets.sql.unit import SqlUnits

TABLES = """
CREATE SCHEMA shop; CREATE SCHEMA side;
CREATE TYPE shop.state AS ENUM ('new', 'old');
CREATE TABLE shop.item (id int PRIMARY KEY, code text, price numeric(9,2), state shop.state DEFAULT 'new');
INSERT INTO shop.item SELECT n, 'c' || n, n / 7.0 FROM generate_series(1, 60) n;
CREATE TABLE side.note (id int PRIMARY KEY, said text);
INSERT INTO side.note SELECT n, 'said ' || n FROM generate_series(1, 9) n;
"""
OPEN = "SELECT count(*)::int FROM _tailrace.loading WHERE is_open AND relation = 'shop.item'::regclass::oid"
LOADS = "SELECT count(*)::int FROM _tailrace.loads WHERE NOT applied"
LOADING = (
    "SELECT pid FROM pg_stat_activity WHERE datname = 'copy' AND state = 'active' AND query ~ '^COPY \"shop\".\"item\"'"
)
CHANGES = "UPDATE shop.item SET price = price + 1 WHERE id::int % 5 = 0; DELETE FROM shop.item WHERE id::int = 33;"


class Copy:
    """A first copy in the middle: chunks are in the copy that no batch has taken yet."""

    def __init__(self, server: PostgresServer, target: PostgresServer, folder: Path, username: str | None) -> None:
        self.server, self.target = server, target
        server.execute(TABLES)
        self.pipeline = begin(server.source(), target, folder, username, chunk_rows=4, include="*.*")

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with self.pipeline.running():
                yield
        finally:
            units = self.pipeline._tables
            assert isinstance(units, SqlUnits) and isinstance(units.sessions, SessionPool)
            while not units.sessions._idle.empty():
                units.sessions._idle.get_nowait().close()

    def asked(self, statement: str) -> list[tuple[object, ...]]:
        """Nothing while the target lacks what is asked for."""
        try:
            return self.target.execute(statement, dbname="copy")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []

    def begun(self) -> None:
        """Until rows may be loaded; then some are, which no batch takes."""
        self.pipeline.until(lambda _: self.asked(OPEN) == [(1,)], work=True)
        self.read_until(lambda: self.asked(LOADS) != [(0,)])

    def read(self) -> None:
        """Chunks are read, and no batch is begun."""
        self.pipeline.driver.runner.step(0.02)

    def read_until(self, met: Callable[[], bool]) -> None:
        def look() -> bool:
            self.read()
            return met()

        until(look, "chunks are read", pause=0.0)

    def grants(self) -> list[str]:
        """The statements of `tailrace doctor`."""
        target = targets.open(self.pipeline.replicator.spec.target)
        state = SharedJournal(JournalReader.open(self.pipeline.storage)).refresh()
        assert state.origin is not None
        found = target.obstacles([table.schema for table in state.tables.values()], state.origin.log_id)
        return [statement for one in found for statement in re.findall("`((?:GRANT|ALTER) .*?)`", one.fix)]

    def equal(self, *names: str) -> bool:
        rows = (
            f"SELECT coalesce(array_agg(t::text ORDER BY id::text), '{{}}') FROM {name} t"
            for name in names or ("shop.item", "side.note")
        )
        return all(self.server.execute(each) == self.asked(each) for each in rows)

    def finish(self) -> None:
        driver = self.pipeline.driver
        self.pipeline.until(lambda _: self.equal() and not driver.faults(), work=True)
        settle(self.pipeline)
        assert self.equal()
        key = "SELECT 1 FROM pg_constraint WHERE conrelid = 'shop.item'::regclass AND contype = 'p'"
        assert self.asked(key) == [(1,)]
        assert self.asked(LOADS) == [(0,)] and self.asked("SELECT 1 FROM _tailrace.loading WHERE is_open") == []


@pytest.fixture
def copy(postgres: PostgresServer, tmp_path: Path) -> Iterator[Copy]:
    """Into another server: chunks wait for transactions of their own server that began before a change of the table."""
    with PostgresServer(postgres.major) as target:
        target.execute("CREATE DATABASE copy")
        made = Copy(postgres, target, tmp_path, None)
        with made.running():
            yield made


class Held:
    """Holds up one load into `shop.item`, with its COPY open, until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed, self.reached, self.go = Event(), Event(), Event()
        for kind in (ArrivingSent, ArrivingValues):
            monkeypatch.setattr(kind, "_passing", self._holding(kind._passing))

    def _holding(self, passing: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def hold(arriving: Arriving, *given: object) -> Iterator[Any]:
            yield from passing(arriving, *given)
            if arriving.schema.table_name == "item" and self.armed.is_set():
                self.armed.clear()
                self.reached.set()
                assert self.go.wait(120)

        return hold

    def backend(self, copy: Copy) -> int:
        """The server's process of the next load."""
        self.armed.set()
        copy.read_until(self.reached.is_set)
        ((pid,),) = until(lambda: copy.asked(LOADING), "the server copies its rows")
        return int(str(pid))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.go.set()


TYPES = {
    "bigint": "ALTER TABLE shop.item ALTER id TYPE bigint",
    "text": "ALTER TABLE shop.item ALTER id TYPE text",
    "numeric": "ALTER TABLE shop.item ALTER id TYPE numeric(20,1)",
    "text, and back": "ALTER TABLE shop.item ALTER id TYPE text; ALTER TABLE shop.item ALTER id TYPE int USING id::int",
    "a longer key": "ALTER TABLE shop.item DROP CONSTRAINT item_pkey; ALTER TABLE shop.item ALTER id TYPE bigint,"
    " ADD PRIMARY KEY (id, code)",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("restarts", turns(False, True))
@pytest.mark.parametrize("kind", turns(*TYPES))
def test_the_keys_type_changes_while_rows_are_loaded(copy: Copy, kind: str, restarts: bool) -> None:
    copy.begun()
    copy.server.execute(f"{TYPES[kind]}; {CHANGES}")
    for _ in range(5):
        copy.read()
    if restarts:
        copy.pipeline.stop()
        copy.pipeline.start()
    copy.server.execute(CHANGES)
    copy.finish()


@pytest.mark.timeout(300)
def test_the_keys_type_changes_while_a_load_is_under_way(
    copy: Copy, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    copy.begun()
    held.backend(copy)
    copy.server.execute(f"{TYPES['text']}; {CHANGES}")  # the source has given the load its rows
    copy.pipeline.until(lambda state: len(state.snapshots) > 2, work=True)  # the table has started over
    for _ in range(20):
        copy.pipeline.turn()
    held.go.set()
    copy.finish()


TAKEN = {
    "INSERT": "REVOKE INSERT ON shop.item FROM plain",
    "DELETE": "REVOKE DELETE ON shop.item FROM plain",
    "SELECT": "REVOKE SELECT ON shop.item FROM plain",
    "all rights": "REVOKE ALL ON shop.item FROM plain",
    "its schema": "REVOKE ALL ON SCHEMA shop FROM plain",
    "the table itself": "ALTER TABLE shop.item OWNER TO postgres",
}


@pytest.fixture
def poor(postgres: PostgresServer, tmp_path: Path) -> Iterator[Copy]:
    """The schema of the copy belongs to another role, and so does a type of it."""
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    postgres.execute("CREATE SCHEMA shop; GRANT ALL ON SCHEMA shop TO plain", dbname="copy")
    postgres.execute("CREATE TYPE shop.state AS ENUM ('new', 'old')", dbname="copy")
    made = Copy(postgres, postgres, tmp_path, "plain")
    with made.running():
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("under_way", turns(False, True))
@pytest.mark.parametrize("right", turns(*TAKEN))
def test_a_right_that_is_taken_away_while_rows_are_loaded_stops_this_table_until_it_is_granted(
    poor: Copy, held: Held, right: str, under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    poor.begun()
    if under_way:
        held.backend(poor)
        if right != "the table itself":  # whose new owner waits for the load
            poor.target.execute(TAKEN[right], dbname="copy")
        held.go.set()
    poor.target.execute(TAKEN[right], dbname="copy")
    poor.server.execute(CHANGES + "INSERT INTO side.note VALUES (100, 'later')")
    driver = poor.pipeline.driver
    poor.pipeline.until(lambda _: driver.faults() == {"shop.item": "TargetRefused"}, work=True)
    poor.pipeline.until(lambda _: poor.equal("side.note"), work=True)
    (fault,) = (table.fault for table in driver.control.status().tables if table.fault is not None)
    assert "permission denied for" in fault.message or "must be owner of" in fault.message
    grants = poor.grants()
    assert grants
    for statement in grants:
        poor.target.execute(statement, dbname="copy")
    assert poor.grants() == []
    poor.pipeline.until(lambda _: not driver.faults(), work=True)
    poor.server.execute(CHANGES)
    poor.finish()


OWN = {
    "USAGE": "REVOKE USAGE ON SCHEMA _tailrace FROM plain",
    "INSERT": "REVOKE INSERT ON _tailrace.chunks FROM plain",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("right", turns(*OWN))
def test_a_right_on_tailraces_own_schema_that_is_taken_away_ends_the_driver_until_it_is_granted(
    poor: Copy, right: str
) -> None:
    """No table could be copied without it."""
    poor.begun()
    poor.target.execute(OWN[right], dbname="copy")
    poor.server.execute(CHANGES)
    with pytest.raises(TargetRefused, match="permission denied for"):
        poor.pipeline.until(lambda _: False, work=True)
    poor.pipeline.stop()
    statements = poor.grants()
    assert statements
    for statement in statements:
        poor.target.execute(statement, dbname="copy")
    assert poor.grants() == []
    poor.pipeline.start()
    poor.finish()


ENDED = {
    "terminated": "SELECT pg_terminate_backend({})",
    "cancelled": "SELECT pg_cancel_backend({})",
    "restart": "fast",
    "crash": "immediate",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", turns(*ENDED))
def test_the_server_ends_a_load(tmp_path: Path, held: Held, how: str) -> None:
    with PostgresServer(18) as source, PostgresServer(18) as target:
        target.execute("CREATE DATABASE copy")
        copy = Copy(source, target, tmp_path, None)
        with copy.running():
            copy.begun()
            backend = held.backend(copy)
            if how in ("restart", "crash"):
                target.restart(ENDED[how])  # type: ignore[arg-type]  # a mode
            else:
                target.execute(ENDED[how].format(backend), dbname="copy")
            held.go.set()
            source.execute(CHANGES)
            copy.finish()


@pytest.mark.timeout(300)
def test_timeouts_that_the_target_has_for_others_end_no_load(
    postgres: PostgresServer, tmp_path: Path, held: Held
) -> None:
    postgres.execute("CREATE DATABASE copy")
    postgres.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    names = ["statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]
    names += ["transaction_timeout"] if postgres.major >= 17 else []
    for name in names:
        for place in ("ROLE plain", "ROLE plain IN DATABASE copy"):
            postgres.execute(f"ALTER {place} SET {name} = '100ms'")
    copy = Copy(postgres, postgres, tmp_path, "plain")
    with copy.running():
        copy.begun()
        backend = held.backend(copy)
        time.sleep(0.3)
        assert copy.asked(LOADING) == [(backend,)]
        held.go.set()
        copy.finish()
