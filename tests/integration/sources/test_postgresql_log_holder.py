"""A transaction that stays open makes PostgreSQL keep its log for the slot: the status names it."""

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support.pg_source import config_of
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from support.versions import turns
from tailrace import sources
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import Connection, connect
from tailrace.sources.api import Distance
from tailrace.sources.postgresql import oldest
from tailrace.sources.postgresql.oldest import HELD_BYTES, LogHolder

MUCH = Distance(Position(0), behind_bytes=1, retained_bytes=HELD_BYTES + 1)


@pytest.fixture(params=turns(14, 18))
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param, {"max_prepared_transactions": 1}) as server:
        yield server


@pytest.fixture
def connection(server: PostgresServer) -> Iterator[Connection]:
    with connect(config_of(server)) as connection:
        yield connection


@pytest.fixture
def open_one(server: PostgresServer) -> Iterator[psycopg.Connection]:
    server.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
    with server.connect(autocommit=False, application_name="nightly job") as connection:
        connection.execute("INSERT INTO public.t VALUES (1)")
        yield connection


def test_an_old_transaction_is_named_while_much_log_is_kept(
    connection: Connection, open_one: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LogHolder(connection).of(MUCH) is None, "it is young"
    monkeypatch.setattr(oldest, "HELD_SECONDS", 0.0)
    holder = LogHolder(connection)
    assert holder.of(Distance(Position(0), behind_bytes=2, retained_bytes=HELD_BYTES + 1)) is None, "little is kept"
    assert holder.of(Distance(Position(0), behind_bytes=None, retained_bytes=None)) is None, "it is not known"
    named = holder.of(MUCH)
    assert named is not None and "(nightly job)" in named and "idle in transaction" in named
    assert f"pid {open_one.info.backend_pid}, open since 20" in named
    open_one.execute("PREPARE TRANSACTION 'half done'")
    assert holder.of(MUCH) == named, "the source is not asked each second"
    monkeypatch.setattr(oldest, "ASK_SECONDS", 0.0)
    prepared = holder.of(MUCH)
    assert prepared is not None and "prepared transaction 'half done'" in prepared and "ROLLBACK PREPARED" in prepared
    connection.execute("ROLLBACK PREPARED 'half done'")
    assert holder.of(MUCH) is None


def test_it_is_named_as_well_by_a_user_who_may_not_see_since_when_it_is_open(
    server: PostgresServer, open_one: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE ROLE few LOGIN")
    monkeypatch.setattr(oldest, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(oldest, "HELD_SECONDS", 0.5)
    with connect(config_of(server, "few")) as connection:
        holder = LogHolder(connection)
        assert holder.of(MUCH) is None, "nobody knows that it is old"
        time.sleep(0.6)
        named = holder.of(MUCH)
    assert named is not None and f"pid {open_one.info.backend_pid}, open since an unknown time" in named


def test_capture_names_it(
    server: PostgresServer, open_one: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oldest, "HELD_SECONDS", 0.0)
    monkeypatch.setattr(oldest, "HELD_BYTES", 1)
    monkeypatch.setattr(oldest, "ASK_SECONDS", 0.5)
    open_one.rollback()
    source = {"type": "postgresql", "host": server.host, "port": server.port, "database": "postgres"}
    document = document_of(
        source=source | {"username": "postgres"},
        tables={"include": ["public.t"]},
        target={"type": "delta", "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
    )
    spec = Replicator.model_validate(document).spec
    copy = Pipeline(document, sources.open(spec.source, "test"), tmp_path)
    with copy.running():
        capture = copy.capture
        assert capture is not None

        def told() -> str | None:
            with CaptureClient(capture.socket, 60) as client:
                return client.state().log_held_by

        copy.settle(Position(0))
        open_one.execute("INSERT INTO public.t VALUES (7)")
        copy.until(lambda state: f"pid {open_one.info.backend_pid}, open since" in (told() or ""))
        open_one.commit()
        copy.until(lambda state: told() is None)
