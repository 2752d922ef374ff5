"""A reader that is frozen while its connection holds a COPY open, for longer than anybody waits for it: another one has
read its chunk when it continues. No row is lost, doubled or left (`targets.sql.loaded`)."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.frozen import Frozen, freeze
from support.postgres import PostgresServer
from support.versions import turns
from support.waiting import until
from tailrace.databases.postgresql import connect
from tailrace.errors import Locked
from tailrace.targets.api import ChunkWriter, NeededChunks

from .test_late_keys import Copied
from .test_loaded_chunks import STAGED, error_of, finish, found, is_loaded, rows

LOADING = "SELECT pid FROM pg_stat_activity WHERE query ~ '^COPY' AND state = 'active'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def copied(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """The first of three ranges has been applied."""
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; CREATE SCHEMA public")
    made = Copied(server, tmp_path)
    made.read(0)
    return made


def frozen(copied: Copied, number: int) -> Frozen:
    """A reader of this range."""
    all_rows = found(copied, number)
    writer: ChunkWriter = pickle.loads(pickle.dumps(copied.log.writer))  # with connections of its own, as on executors

    def parts() -> Iterator[pa.Table]:
        yield all_rows.slice(0, 5)
        yield all_rows.slice(5, 5)
        freeze()
        yield all_rows.slice(10)

    made = Frozen(lambda: writer.write("s", number, parts()))
    assert copied.server.execute(LOADING) != []
    return made


def backend_of(copied: Copied) -> int:
    ((pid,),) = copied.server.execute(LOADING)
    return int(pid)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_frozen_load_commits_after_another_reader_has_read_its_chunk(copied: Copied, restarts: bool) -> None:
    with frozen(copied, 1) as late:
        if restarts:
            copied.table.restart()
        copied.read(1, follow=False)
        assert is_loaded(copied) == (not restarts)
        copied.log.change(9, lacking=True)
        waits = error_of(lambda: copied.table.follow(copied.log))
        assert isinstance(waits, Locked)
        assert waits.message.endswith(f"loaded into public.t (backend {backend_of(copied)})")
        assert late.thaw()
        assert rows(copied) == ((28, 28) if restarts else (42, 28))
    copied.table.open()
    copied.table.follow(copied.log)
    assert copied.has_key() and rows(copied)[0] == rows(copied)[1]
    copied.read(2)
    finish(copied)


def test_a_load_that_commits_after_its_rows_batch_is_not_there_twice(copied: Copied) -> None:
    """The batch of the other reader's chunk had nothing to wait for."""
    with frozen(copied, 1) as late:
        copied.read(1, 2)
        assert is_loaded(copied) and rows(copied) == (40, 40)
        copied.log.finish()
        assert isinstance(error_of(lambda: copied.table.follow(copied.log)), Locked)
        assert late.thaw()
        assert rows(copied) == (54, 40)
    copied.table.open()
    copied.table.follow(copied.log)
    assert rows(copied) == (40, 40)
    copied.check()


@pytest.mark.parametrize("ended_by", turns("its backend is terminated", "the server restarts", "the server crashes"))
def test_a_frozen_load_that_the_server_ends_fails_when_it_continues(copied: Copied, ended_by: str) -> None:
    with frozen(copied, 1) as late:
        copied.read(1, follow=False)
        if ended_by == "its backend is terminated":
            copied.server.execute(f"SELECT pg_terminate_backend({backend_of(copied)}, 60000)")
        else:
            copied.server.restart("fast" if ended_by == "the server restarts" else "immediate")
            copied.table.restart()
        copied.log.change(9)
        until(lambda: copied.server.execute(LOADING) == [], "the load has ended")
        copied.table.follow(copied.log)
        assert copied.has_key()
        assert not late.thaw()
    copied.read(2)
    if ended_by == "the server crashes":
        copied.check()  # the snapshot's end would find that the first chunk was emptied, and have it read again
    else:
        finish(copied)


def test_a_frozen_reader_that_stages_its_chunk_leaves_a_table_that_upkeep_drops(copied: Copied) -> None:
    copied.log.change(1)
    copied.table.follow(copied.log)
    assert copied.has_key()
    with frozen(copied, 1) as late:
        copied.read(1)
        copied.log.change(9, lacking=True)
        copied.table.follow(copied.log)
        registered = {str(logged.chunk.path) for logged in copied.log.table.chunks}
        copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(frozenset(registered)), 4e9)
        assert {name for (name,) in copied.server.execute(STAGED)} == registered
        assert late.thaw()
        assert len(copied.server.execute(STAGED)) == len(registered) + 1
    copied.read(2)
    finish(copied)
