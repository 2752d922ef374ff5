"""Chunks whose rows are loaded into the copy itself, ahead of its state (`targets.sql.loaded`): no row is lost, doubled
or left, and no chunk has to be read again, whoever dies, comes late or comes twice."""

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from support.killed import killed_at
from support.postgres import PostgresServer
from support.read_ranges import ReadRange, ReadRanges, SentRanges
from support.versions import turns
from tailrace.changelog.records.terms import RecordNumber
from tailrace.databases.postgresql import connect
from tailrace.errors import Fenced, Locked, TailraceError, TargetRefused
from tailrace.targets.api import ChunkLost, ChunkWriter, NeededChunks, TableFailed, WrittenChunk
from tailrace.targets.sql import loaded
from tailrace.targets.sql.unit import SqlUnit

from .test_late_keys import Copied

ROWS = "SELECT count(*)::int, count(DISTINCT id)::int FROM public.t"
NOTES = "SELECT count(*)::int FROM _tailrace.loads"
OPEN = "SELECT is_open FROM _tailrace.loading"
STAGED = (
    "SELECT relname FROM pg_class"
    " WHERE relnamespace = '_tailrace'::regnamespace AND relkind = 'r' AND relname ~ '^(chunk|rows)_[0-9]+_'"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture(params=turns(ReadRanges, SentRanges))
def copied(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Copied:
    """The first of three ranges has been applied."""
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; DROP PUBLICATION IF EXISTS copies")
    server.execute("DROP ACCESS METHOD IF EXISTS other; CREATE SCHEMA public")
    made = Copied(server, tmp_path, ranges=request.param)
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
    return copied.log.found(keys_of(number))


def keys_of(number: int) -> range:
    return range(14 * number, 14 * number + 14)


def unregistered(copied: Copied, number: int) -> WrittenChunk | None:
    """A chunk that is written, and whose reader dies then."""
    return copied.log.put(number, found(copied, number))


def register(copied: Copied, read: ReadRange) -> None:
    copied.log.record = RecordNumber(copied.log.record + 1)
    copied.log.register(read)


def finish(copied: Copied) -> None:
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()
    assert copied.server.execute(OPEN) == []
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(), 4e9)
    assert copied.server.execute(NOTES) == [(0,)]
    assert copied.server.execute("SELECT count(*)::int FROM _tailrace.chunks") == [(0,)]
    assert copied.server.execute("SELECT count(*)::int FROM _tailrace.keys_of_chunks") == [(0,)]
    assert copied.server.execute(STAGED) == []


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


@pytest.mark.parametrize(("lacking", "restarts"), turns((True, False), (False, False), (True, True), (False, True)))
def test_a_change_before_the_batch_of_a_loaded_chunk_has_it_staged(
    copied: Copied, lacking: bool, restarts: bool
) -> None:
    """Changes that lack values are completed out of the staged rows."""
    copied.read(1, follow=False)
    assert is_loaded(copied)
    copied.log.change(30, lacking=lacking)
    if restarts:
        copied.table.restart()
    copied.table.follow(copied.log)
    assert copied.has_key()
    copied.read(2)
    assert not is_loaded(copied)
    finish(copied)


@pytest.mark.parametrize("changes", [0, 30])
def test_a_chunk_is_registered_after_it_was_staged(copied: Copied, changes: int) -> None:
    read = copied.log.look(1, keys_of(1))
    copied.log.change(30)
    copied.table.follow(copied.log)
    assert copied.has_key()
    if changes:
        copied.log.change(changes, lacking=True)
    register(copied, read)
    copied.table.follow(copied.log)
    copied.read(2)
    finish(copied)


def test_rows_that_a_copy_has_in_another_order_than_their_chunk_are_found(copied: Copied) -> None:
    copied.read(1, follow=False)
    copied.server.execute(
        "CREATE INDEX other ON public.t (t DESC, u); CLUSTER public.t USING other; DROP INDEX public.other"
    )
    copied.log.change(40, lacking=True)
    copied.table.follow(copied.log)
    copied.read(2)
    finish(copied)


def test_the_end_of_the_loading_meets_other_columns(copied: Copied) -> None:
    copied.read(1, follow=False)
    assert is_loaded(copied)
    evolve(copied)
    copied.table.follow(copied.log)
    copied.log.change(9)
    copied.read(2)
    finish(copied)


def evolve(copied: Copied) -> None:
    """A column more, and another name for an old one."""
    log = copied.log
    log.record = RecordNumber(log.record + 1)
    log._evolve()
    log.source = {key: (*row, None) for key, row in log.source.items()}


@pytest.mark.parametrize(("with_end", "restarts"), turns((True, False), (False, False), (True, True), (False, True)))
def test_a_batch_that_dies_before_its_commit_leaves_loaded_chunks_to_the_next(
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
    copied.table.follow(copied.log)
    if with_end:
        copied.check()
    else:
        copied.read(2)
        finish(copied)


@pytest.mark.parametrize("brings", ["a range", "a change"])
@pytest.mark.parametrize("seam", turns("load.withdrawn", "apply.before-commit", "apply.after-commit"))
def test_a_driver_is_killed_while_its_batch_meets_loaded_chunks(copied: Copied, seam: str, brings: str) -> None:
    copied.read(1, follow=False)
    assert is_loaded(copied) and unregistered(copied, 2) is not None
    if brings == "a change":
        copied.log.change(9, lacking=True)
    elif seam == "load.withdrawn":
        copied.log.finish()
        copied.log.change(1)

    def follow() -> None:
        unit = copied.table.unit
        assert isinstance(unit, SqlUnit)
        kept = unit.units.sessions  # whose connections are not a fork's to use, or to close
        unit.units.sessions = pickle.loads(pickle.dumps(kept))
        copied.table.follow(copied.log)
        del kept

    killed_at(seam, follow)
    copied.log._update(finishes=())
    copied.table.restart()
    copied.table.follow(copied.log)
    copied.read(2)
    finish(copied)


def test_a_crash_of_the_server_empties_what_was_staged_and_no_more(copied: Copied) -> None:
    read = copied.log.look(1, keys_of(1))
    copied.read(2)
    copied.log.change(9)
    copied.table.follow(copied.log)
    copied.server.restart("immediate")
    copied.table.restart()
    register(copied, read)
    lost = error_of(lambda: copied.table.follow(copied.log))
    assert isinstance(lost, ChunkLost) and [chunk.chunk for chunk in lost.chunks] == [1]
    copied.log._update(chunks=tuple(each for each in copied.log.table.chunks if each.chunk.chunk != 1))
    copied.table.open()
    copied.read(1)
    copied.check()


@pytest.mark.parametrize("ended_by", turns("a range", "a change"))
def test_a_crash_of_the_server_leaves_loaded_chunks(copied: Copied, ended_by: str) -> None:
    copied.read(1, follow=False)
    assert is_loaded(copied)
    copied.server.restart("immediate")
    copied.table.restart()
    if ended_by == "a change":
        copied.log.change(9)
    copied.table.follow(copied.log)
    copied.read(2)
    copied.check()


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
    assert isinstance(waits, Locked) and "public.t (backend " in waits.message
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
    "another way of storing rows": "CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler;"
    " ALTER TABLE public.t SET ACCESS METHOD other",
    "a child": "CREATE TABLE public.child () INHERITS (public.t)",
}


@pytest.mark.parametrize("added", turns(*ADDED))
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


@pytest.mark.parametrize(("others", "changes"), turns((0, 0), (1, 0), (0, 9), (1, 9)))
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
    monkeypatch.setattr(loaded, "MOST_ROWS", 20)
    copied.read(1)
    assert is_loaded(copied) and not copied.has_key()
    assert copied.server.execute(OPEN) == [(False,)]
    copied.read(2)
    assert not is_loaded(copied) and copied.has_key()
    finish(copied)


def test_a_copy_whose_batches_wait_gets_no_more_than_the_most_rows(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "MOST_ROWS", 14)
    copied.read(1, follow=False)
    assert is_loaded(copied)
    copied.read(2, follow=False)
    assert not is_loaded(copied)
    copied.table.follow(copied.log)
    finish(copied)


def test_a_chunk_that_its_reader_throws_away_is_not_staged(copied: Copied) -> None:
    written = unregistered(copied, 1)
    assert written is not None
    copied.log.writer.discard([written.path])
    copied.log.change(9)
    copied.table.follow(copied.log)
    assert copied.server.execute(STAGED + " AND relname ~ 'rows'") == []
    copied.read(1, 2)
    finish(copied)


STEPS = ("look", "look twice", "register", "register", "change", "follow", "die", "restart", "evolve")


@pytest.mark.parametrize("seed", turns(*range(12)))
def test_whatever_comes_in_whatever_order_the_copy_becomes_what_the_source_is(copied: Copied, seed: int) -> None:
    log, rnd, unread, read = copied.log, Random(seed), [1, 2], list[ReadRange]()
    log.rnd = rnd
    for _ in range(14):
        current = log.schema.version == copied.table.applied.schema_version
        match rnd.choice(STEPS):
            case "look" if unread and current:
                number = unread.pop(rnd.randrange(len(unread)))
                read.append(log.look(number, keys_of(number)))
            case "look twice" if current:
                unregistered(copied, rnd.choice((1, 2)))
            case "register" if read:
                register(copied, read.pop(rnd.randrange(len(read))))
            case "change" if rnd.random() < 0.5:
                log.change(rnd.randrange(1, 12), lacking=rnd.random() < 0.5)
            case "follow":
                copied.table.follow(log)
            case "die":
                copied.admits = False
                if log.record > copied.table.applied.applied_record:
                    with pytest.raises(Fenced):
                        copied.table.follow(log)
                copied.admits = True
                copied.table.open()
            case "restart":
                copied.table.restart()
            case "evolve" if log.schema.version < 2 and rnd.random() < 0.3:
                evolve(copied)
    for each in read:
        register(copied, each)
    copied.table.follow(log)
    copied.read(*unread)
    finish(copied)
