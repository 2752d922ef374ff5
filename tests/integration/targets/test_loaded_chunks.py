"""Chunks whose rows are loaded into the copy itself, ahead of its state (`targets.sql.loaded`): no row is lost, doubled
or left, whoever dies, comes late or comes twice."""

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.killed import killed_at
from support.postgres import PostgresServer
from tailrace.databases.postgresql import connect
from tailrace.errors import Fenced, Retry, TailraceError, TargetRefused
from tailrace.targets.api import ChunkLost, ChunkWriter, NeededChunks, TableFailed, WrittenChunk
from tailrace.targets.sql import first_copy

from .test_late_keys import Copied

ROWS = "SELECT count(*)::int, count(DISTINCT id)::int FROM public.t"
NOTES = "SELECT count(*)::int FROM _tailrace.loads"
OPEN = "SELECT is_open FROM _tailrace.loading"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def copied(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """The first of three ranges has been applied."""
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; DROP PUBLICATION IF EXISTS copies")
    server.execute("CREATE SCHEMA public")
    made = Copied(server, tmp_path)
    made.read(0)
    assert not is_loaded(made) and rows(made) == (14, 14)
    return made


def rows(copied: Copied) -> tuple[int, int]:
    """Rows that a reader sees, and how many of them have a key of their own."""
    ((count, distinct),) = copied.server.execute(ROWS)
    return count, distinct


def is_loaded(copied: Copied) -> bool:
    """True if the rows of the chunk that was registered last were loaded into the copy itself."""
    return str(copied.log.table.chunks[-1].chunk.path).startswith("rows_")


def found(copied: Copied, number: int) -> pa.Table:
    """The rows that a reader finds in a range."""
    log, keys = copied.log, range(14 * number, 14 * number + 14)
    return pa.table(
        log._columns([log.source[key] for key in keys if key in log.source]),
        names=[column.name for column in log.schema.columns],
    )


def unregistered(copied: Copied, number: int) -> WrittenChunk | None:
    """A chunk that is written, and whose reader dies then."""
    return copied.log.put(number, found(copied, number))


def finish(copied: Copied) -> None:
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()
    assert copied.server.execute(OPEN) == []
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(), 4e9)
    assert copied.server.execute(NOTES) == [(0,)]
    assert copied.server.execute("SELECT count(*)::int FROM _tailrace.chunks") == [(0,)]


def error_of(work: Callable[[], object]) -> Exception:
    with pytest.raises((TableFailed, TailraceError)) as raised:
        work()
    return raised.value.error if isinstance(raised.value, TableFailed) else raised.value


def test_further_ranges_are_in_the_copy_before_their_batch_which_adds_nothing(copied: Copied) -> None:
    for number, all_rows in ((1, 28), (2, 40)):
        copied.read(number, follow=False)
        assert is_loaded(copied) and rows(copied) == (all_rows, all_rows)
        copied.table.follow(copied.log)
        assert rows(copied) == (all_rows, all_rows)
    finish(copied)


@pytest.mark.parametrize("ended_by", ["the next driver", "a change", "the snapshot's end"])
def test_rows_of_a_reader_that_dies_before_its_chunk_is_registered_go(copied: Copied, ended_by: str) -> None:
    writer: ChunkWriter = pickle.loads(pickle.dumps(copied.log.writer))  # with connections of its own, as on executors
    killed_at("load.after-commit", lambda: writer.write("s", 1, [found(copied, 1)]))
    assert rows(copied) == (28, 28)
    if ended_by == "the next driver":
        copied.table.restart()
    elif ended_by == "a change":
        copied.log.change(1)
        copied.table.follow(copied.log)
        assert rows(copied)[0] in (13, 14, 15)
    copied.read(1, 2)
    assert is_loaded(copied) == (ended_by == "the snapshot's end")
    finish(copied)


def test_a_chunk_that_two_readers_load_is_there_once(copied: Copied) -> None:
    assert unregistered(copied, 1) is not None
    copied.read(1, follow=False)
    assert is_loaded(copied) and rows(copied) == (42, 28)
    copied.table.follow(copied.log)
    copied.read(2, follow=False)
    assert unregistered(copied, 2) is not None
    copied.log.finish()
    copied.table.follow(copied.log)
    assert rows(copied) == (40, 40)
    copied.check()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_change_before_the_batch_of_a_loaded_chunk_has_it_read_again(copied: Copied, restarts: bool) -> None:
    copied.read(1, follow=False)
    assert is_loaded(copied)
    copied.log.change(9)
    if restarts:
        copied.table.restart()
    lost = error_of(lambda: copied.table.follow(copied.log))
    assert isinstance(lost, ChunkLost) and [chunk.chunk for chunk in lost.chunks] == [1]
    assert not copied.has_key()
    copied.table.open()
    copied.read_again(1)
    assert not is_loaded(copied)
    copied.table.follow(copied.log)
    assert copied.has_key()
    copied.read(2)
    assert not is_loaded(copied)
    finish(copied)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("with_end", [False, True])
def test_a_batch_that_dies_before_its_commit_has_its_loaded_chunk_read_again(
    copied: Copied, with_end: bool, restarts: bool
) -> None:
    copied.read(1, follow=False)
    if with_end:
        copied.read(2, follow=False)
        copied.log.finish()
    copied.admits = False
    with pytest.raises(Fenced):
        copied.table.follow(copied.log)
    copied.admits = True
    if restarts:
        copied.table.restart()
    else:
        copied.table.open()
    assert isinstance(error_of(lambda: copied.table.follow(copied.log)), ChunkLost)
    copied.table.open()
    for number in (1, 2):
        copied.read_again(number)
        assert not is_loaded(copied)
    finish(copied)


class Late:
    """A reader whose rows come when `go` is set."""

    def __init__(self, copied: Copied, number: int) -> None:
        self.go, self.entered = threading.Event(), threading.Event()
        log, all_rows = copied.log, found(copied, number)
        writer, self.written = log.writer, list[WrittenChunk | None]()

        def parts() -> Iterator[pa.Table]:
            yield all_rows.slice(0, 5)
            self.entered.set()
            assert self.go.wait(20)
            yield all_rows.slice(5)

        self._thread = threading.Thread(target=lambda: self.written.append(writer.write("s", number, parts())))
        self._thread.start()
        assert self.entered.wait(20)

    def end(self) -> str:
        self.go.set()
        self._thread.join()
        assert self.written and self.written[0] is not None
        return self.written[0].path


@pytest.mark.parametrize("restarts", [False, True])
def test_a_load_that_is_under_way_is_waited_for_and_none_begins_meanwhile(copied: Copied, restarts: bool) -> None:
    late = Late(copied, 1)
    copied.log.change(9)
    if restarts:
        copied.table.restart()
    waits = error_of(lambda: copied.table.follow(copied.log))
    assert isinstance(waits, Retry) and "held a lock" in str(waits)
    assert copied.server.execute(OPEN) == [(False,)]
    copied.table.open()
    copied.read(2, follow=False)
    assert not is_loaded(copied)
    assert late.end().startswith("rows_")
    copied.table.follow(copied.log)
    assert copied.has_key() and rows(copied)[0] == rows(copied)[1]
    copied.read(1)
    finish(copied)


ADDED = {
    "an index": "CREATE INDEX ON public.t (id)",
    "a key": "ALTER TABLE public.t ADD PRIMARY KEY (id)",
    "a constraint": "ALTER TABLE public.t ADD CHECK (id >= 0)",
    "a trigger": "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
    " CREATE TRIGGER nothing BEFORE INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.nothing()",
    "a column": "ALTER TABLE public.t ADD more text DEFAULT 'x'",
    "a publication": "CREATE PUBLICATION copies FOR TABLE public.t",
    "a child": "CREATE TABLE public.child () INHERITS (public.t)",
}


@pytest.mark.parametrize("added", ADDED)
def test_rows_are_staged_where_people_have_added_something_to_the_copy(copied: Copied, added: str) -> None:
    copied.server.execute(ADDED[added])
    copied.read(1, follow=False)
    assert not is_loaded(copied) and rows(copied) == (14, 14)


def test_rows_of_another_snapshot_are_staged(copied: Copied) -> None:
    written = copied.log.writer.write("another", 1, [found(copied, 1)])
    assert written is not None and written.path.startswith("chunk_")


@pytest.mark.parametrize("published", [False, True])
def test_rows_that_no_batch_takes_go_from_a_published_copy_as_well(copied: Copied, published: bool) -> None:
    unregistered(copied, 1)
    if published:
        copied.server.execute("CREATE PUBLICATION copies FOR TABLE public.t")
    copied.table.restart()
    copied.read(1)
    assert rows(copied) == (28, 28) and copied.has_key()
    copied.read(2)
    copied.server.execute("DROP PUBLICATION IF EXISTS copies")
    finish(copied)


def test_rows_that_another_program_has_written_again_are_not_guessed_at(copied: Copied) -> None:
    unregistered(copied, 1)
    copied.server.execute("UPDATE public.t SET id = id WHERE id = 20")
    copied.log.change(1)
    refused = error_of(lambda: copied.table.follow(copied.log))
    assert isinstance(refused, TargetRefused) and "public.t" in refused.message
    copied.server.execute("DROP TABLE public.t")
    copied.log._update(chunks=())
    copied.table.restart()
    for number in range(3):
        copied.read(number)
    finish(copied)


@pytest.mark.parametrize("changes", [0, 9])
@pytest.mark.parametrize("others", [0, 1])
def test_the_end_of_a_snapshot_finds_rows_that_are_in_no_loaded_chunk(
    copied: Copied, others: int, changes: int
) -> None:
    copied.read(1, 2)
    assert is_loaded(copied)
    copied.server.execute(f"INSERT INTO public.t (id) SELECT 1000 WHERE {others} > 0")
    if changes:
        copied.log.change(changes)
    finish(copied)


def test_a_snapshot_that_is_given_up_leaves_no_row_that_no_batch_took(copied: Copied) -> None:
    unregistered(copied, 1)
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(), 4e9)
    assert rows(copied) == (14, 14) and copied.has_key()


def test_large_copies_take_what_is_loaded_and_no_more(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_copy, "MOST_ROWS", 20)
    copied.read(1)
    assert is_loaded(copied) and not copied.has_key()
    assert copied.server.execute(OPEN) == [(False,)]
    copied.read(2)
    assert not is_loaded(copied) and copied.has_key()
    finish(copied)
