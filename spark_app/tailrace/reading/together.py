"""The steps of many small tables at once: on one connection to the source, and with one record of the journal for all.

Run on the snapshot runner's threads, beside `steps`, which has the same for a table by itself. Each table is checked as
there, and fails alone; an error that the others would meet as well ends them all.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.snapshots import SnapshotTableFinished, SnapshotTableStarted
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.state import TableLog
from tailrace.errors import AuthenticationFailed, Retry, Stop
from tailrace.reading import steps, task
from tailrace.reading.executors import SMALL_TABLE_BYTES
from tailrace.reading.steps import Start, Tools
from tailrace.reading.task import ChunkFile, ChunkTask
from tailrace.seams import seam
from tailrace.snapshot.chunks import TableRun
from tailrace.snapshot.ranges import Range
from tailrace.sources.api import Session, Table

MOST = 16
"""Tables of one group: the time of a few tens of milliseconds to read them all is that of the first to be seen."""

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class StartAsked:
    run: TableRun
    log_table: TableLog
    chunk_rows: int


@dataclass(frozen=True)
class ChunkAsked:
    run: TableRun
    part: Range
    table: Table


@dataclass(frozen=True)
class _Unregistered:
    asked: ChunkAsked
    task: ChunkTask
    file: ChunkFile
    seconds: float


def is_of_all(error: Exception) -> bool:
    """True if whatever else is asked of the place now meets the same. (A server may lock who is refused too often.)"""
    return isinstance(error, AuthenticationFailed | Stop) or (isinstance(error, Retry) and error.away)


def each(asked: Sequence[A], act: Callable[[A], T]) -> list[T | Exception]:
    """The result for each, or its error; of all that follow, too, where they would meet the same."""
    found: list[T | Exception] = []
    for number, one in enumerate(asked):
        try:
            found.append(act(one))
        except Exception as error:  # handed to the runner, which names it in the status
            found.append(error)
            if is_of_all(error):
                return found + [error] * (len(asked) - number - 1)
    return found


def find_starts(tools: Tools, client: CaptureClient, asked: Sequence[StartAsked]) -> list[Start | Exception]:
    """`steps.find_start` for each."""
    state = tools.journal.refresh()
    with ExitStack() as opened:
        session: Session | None = None

        def look(one: StartAsked) -> Start:
            nonlocal session
            logged = steps.logged_in(state, one.run)
            try:
                session = session or opened.enter_context(tools.source.session())
                return steps.look_for_start(tools, session, logged, one.run, one.log_table, one.chunk_rows)
            except BaseException:
                opened.close()  # it may have been the connection
                session = None
                raise

        found = each(asked, look)
    new = {n: start for n, start in enumerate(found) if isinstance(start, Start) and not start.recorded}
    begun = [
        (steps.started(asked[n].run, start), {asked[n].log_table.table_id: asked[n].log_table.added_record})
        for n, start in new.items()
    ]
    for number, error in zip(new, _appended(client, begun), strict=True):
        found[number] = error or found[number]
    return found


def record_finishes(tools: Tools, client: CaptureClient, runs: Sequence[TableRun]) -> list[Exception | None]:
    """`steps.record_finish` for each."""
    state = tools.journal.refresh()
    events = each(runs, lambda run: steps.finish_of(steps.logged_in(state, run), run))
    found: list[Exception | None] = [event if isinstance(event, Exception) else None for event in events]
    new = {n: event for n, event in enumerate(events) if isinstance(event, SnapshotTableFinished)}
    ends = [(event, dict(steps.added_with(runs[n]))) for n, event in new.items()]
    for number, error in zip(new, _appended(client, ends), strict=True):
        found[number] = error
    return found


def _appended(
    client: CaptureClient,
    events: Sequence[tuple[SnapshotTableStarted | SnapshotTableFinished, dict[int, RecordNumber]]],
) -> list[Exception | None]:
    """The errors of their recording. All in one record; if that is refused, or its outcome unknown, each by itself,
    since one of them may be what does not fit."""
    if not events:
        return []
    try:
        added = {table_id: record for _, tables in events for table_id, record in tables.items()}
        client.append([event for event, _ in events], added)
        return [None] * len(events)
    except Retry as error:
        if error.away or len(events) == 1:
            return [error] * len(events)

    def append(one: tuple[SnapshotTableStarted | SnapshotTableFinished, dict[int, RecordNumber]]) -> None:
        client.append([one[0]], one[1])

    return each(events, append)


def read(tools: Tools, asked: Sequence[ChunkAsked]) -> list[ChunkFile | Exception]:
    """`steps.read` for each: a small table's only chunk. Those that are read do not wait for one that fails, and which
    may have waited for a lock: they are registered before the next is tried."""
    state = tools.journal.refresh()
    found: dict[int, ChunkFile | Exception] = {}
    waiting: dict[int, _Unregistered] = {}
    large: list[int] = []
    client = CaptureClient(tools.socket)
    try:
        client.begin_chunks(*((one.run.snapshot_id, one.run.table_id, one.part.ordinal) for one in asked))
        with tools.source.reader().kept() as reader:

            def attempt(number: int) -> None:
                run, part, table = asked[number].run, asked[number].part, asked[number].table
                begun = time.monotonic()
                try:
                    known = steps.registered(steps.logged_in(state, run), part, table)
                    if known is not None:
                        found[number] = known
                        return
                    chunk = steps.chunk_task_of(tools, run, part, table, reader)
                    file = task.perform(chunk, SMALL_TABLE_BYTES)
                    waiting[number] = _Unregistered(asked[number], chunk, file, time.monotonic() - begun)
                except task.TooMuch:
                    large.append(number)
                except Exception:
                    _register(client, waiting, found)
                    raise

            for number, error in enumerate(each(range(len(asked)), attempt)):
                if error is not None:
                    found[number] = error
        _register(client, waiting, found)
    finally:
        client.close()  # a chunk that is not registered no longer holds the log back
    for number in large:
        (found[number],) = each([asked[number]], lambda one: steps.read(tools, one.run, one.part, one.table))
    return [found[number] for number in range(len(asked))]


def _register(
    client: CaptureClient, waiting: dict[int, _Unregistered], found: dict[int, ChunkFile | Exception]
) -> None:
    """Have all that wait registered, and take them off: capture answers when it has reached the end of the source's log
    as it was behind each, so they wait at the same time."""
    if not waiting:
        return
    # Dying here leaves files that nobody knows: a clean-up of the folders takes them, the chunks are read again.
    seam("snapshot.before-register")

    def register(one: _Unregistered) -> ChunkFile | Exception:
        try:
            steps.register(client, one.asked.run, one.asked.part, one.task, one.file)
        except Exception as error:  # as in `each`
            return error
        steps.log_chunk(one.task, one.asked.part, one.file, one.seconds)
        return one.file

    with ThreadPoolExecutor(len(waiting)) as pool:
        found |= dict(zip(waiting, pool.map(register, waiting.values()), strict=True))
    seam("snapshot.after-register")
    waiting.clear()
