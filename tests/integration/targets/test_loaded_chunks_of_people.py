"""Chunks whose rows are loaded into a copy (`targets.sql.loaded`) which people work on meanwhile: its table is copied
all the same, and no other one has to wait or stop for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.random_log import first_schema
from tailrace.databases.postgresql import connect
from tailrace.errors import Locked, Retry, TargetRefused
from tailrace.targets.api import ChunkLost
from tailrace.targets.sql.unit import SqlUnit

from .test_late_keys import Copied
from .test_loaded_chunks import OPEN, error_of, finish, is_loaded


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def empty(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; CREATE SCHEMA public")
    return server


@pytest.fixture
def copied(empty: PostgresServer, tmp_path: Path) -> Copied:
    """The first of three ranges has been applied."""
    made = Copied(empty, tmp_path)
    made.log.source = {key: (key, "x", 1.0) for key in range(40)}
    made.read(0)
    return made


def test_a_type_that_the_target_gets_during_a_first_copy_stops_no_table(empty: PostgresServer, tmp_path: Path) -> None:
    schema = first_schema(composite=False)
    kinds = {"t": {"source_type": "public.mood"}}
    columns = tuple(column.model_copy(update=kinds.get(column.name, {})) for column in schema.columns)
    copied = Copied(empty, tmp_path, schema.model_copy(update={"columns": columns}), "postgresql")
    copied.log.source = {key: (key, "happy" if key % 2 else "sad", 1.0) for key in range(40)}
    copied.read(0)
    copied.read(1, follow=False)
    assert is_loaded(copied)
    empty.execute("CREATE TYPE public.mood AS ENUM ('happy', 'sad')")
    assert isinstance(error_of(lambda: copied.table.follow(copied.log)), ChunkLost)
    copied.log._update(chunks=tuple(each for each in copied.log.table.chunks if each.chunk.chunk != 1))
    copied.table.open()
    copied.read(1, 2)
    finish(copied)


def test_rows_that_a_copy_refuses_are_staged_so_that_their_batch_stops_this_table_alone(copied: Copied) -> None:
    copied.log.source[20] = (20, None, 1.0)
    copied.server.execute("ALTER TABLE public.t ALTER t SET NOT NULL")
    assert type(error_of(lambda: copied.read(1, follow=False))) is Retry
    assert copied.server.execute(OPEN) == [(False,)]
    copied.read(1, follow=False)
    assert not is_loaded(copied)
    assert isinstance(error_of(lambda: copied.table.follow(copied.log)), TargetRefused)
    copied.server.execute("ALTER TABLE public.t ALTER t DROP NOT NULL")
    copied.table.restart()
    copied.read(2)
    finish(copied)


@pytest.mark.parametrize("others", ["SHARE UPDATE EXCLUSIVE", "ROW EXCLUSIVE"])  # as VACUUM has it, as an UPDATE
def test_a_change_waits_without_a_fault_for_what_others_do_to_the_copy(copied: Copied, others: str) -> None:
    copied.read(1, follow=False)
    with copied.server.connect(autocommit=False) as other:
        other.execute(f"LOCK TABLE public.t IN {others} MODE")
        copied.log.change(1)
        waits = error_of(lambda: copied.table.follow(copied.log))
        assert isinstance(waits, Locked)
        assert waits.message.endswith(f"public.t (backend {other.info.backend_pid})")
    copied.table.open()
    copied.table.follow(copied.log)
    copied.read(2)
    finish(copied)


def test_rows_that_leave_a_large_copy_are_found_by_reading_it_once(copied: Copied) -> None:
    """The whole copy was read for each load, and its changes waited meanwhile."""
    copied.server.execute("INSERT INTO public.t SELECT 1000 + g, repeat('x', 300), 1 FROM generate_series(1, 9000) g")
    assert copied.log.put(1, copied.log.found(range(14, 28))) is not None
    copied.read(2, follow=False)
    numbers = [number for (number,) in copied.server.execute("SELECT transaction_id::text FROM _tailrace.loads")]
    unit = copied.table.unit
    assert isinstance(unit, SqlUnit) and len(numbers) == 2
    with unit.sessions.session() as session:
        assert session.late_keys is not None
        for brought in session.late_keys.brought(("public", "t"), numbers):
            plan = "\n".join(line for (line,) in session.rows(f"EXPLAIN SELECT 1 FROM public.t t WHERE {brought}"))
            assert "Tid Range Scan" in plan and "Seq Scan" not in plan
            assert len(session.rows(f"SELECT 1 FROM public.t t WHERE {brought}")) in (14, 12)
