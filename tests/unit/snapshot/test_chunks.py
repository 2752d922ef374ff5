import random

import pytest

from support.states import chunk
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.records.snapshots import ChunkRegistered, SnapshotTableFinished
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import SnapshotTable
from tailrace.contract.status import Fault
from tailrace.snapshot import chunks as c
from tailrace.snapshot.ranges import IllegalEvent, Range, gaps_of, misfit

FAULT = Fault(name="Retry", message="gone")


def registered(number: int, lower: Key | None, upper: Key | None) -> ChunkRegistered:
    return chunk(7, number, lower=lower, upper=upper, rows=1, size=1)


def walk(
    run: c.TableRun, rows: list[int], size: int, rng: random.Random, stop_after: int | None = None
) -> tuple[c.TableRun, list[Range]]:
    """Drive a run over integer keys, finishing reads in random order; stop after some registrations (a crash)."""
    done: list[Range] = []
    while run.phase is not c.Phase.DONE:
        if stop_after is not None and len(done) >= stop_after:
            break
        work = c.next_work(run, ahead=3)
        if isinstance(work, c.CheckEdge):
            run = c.step(run, c.EdgePassed())
        elif isinstance(work, c.FindMaxKey):
            run = c.step(run, c.Started((str(max(rows)),) if rows else None, len(rows)))
        elif isinstance(work, c.CutNext):
            run = c.step(run, c.CutBegun())
            inside = sorted(
                r for r in rows if (work.lower is None or r > int(work.lower[0])) and r <= int(work.upper[0])
            )
            run = c.step(run, c.Cut((str(inside[size - 1]),) if len(inside) > size and not work.last else None))
        elif isinstance(work, c.RecordFinish):
            run = c.step(run, c.Finished())
        elif isinstance(work, c.Read) and len(run.reading) < 4 and rng.random() < 0.6:
            run = c.step(run, c.ReadBegun(work.range.ordinal))
        elif run.reading:
            ordinal = rng.choice(list(run.reading))
            if rng.random() < 0.2:
                run = c.step(run, c.ReadFailed(ordinal, FAULT))
            else:
                done.append(run.reading[ordinal])
                run = c.step(run, c.Registered(ordinal, 1))
    return run, done


def after(table: SnapshotTable, done: list[Range]) -> SnapshotTable:
    """As the journal has it once these are registered: all of them fit."""
    for part in done:
        chunk, ordinals = registered(part.ordinal, part.lower, part.upper), table.ordinals_with(part.ordinal)
        assert misfit(chunk, table, ()) is None and ordinals is not None
        known = {"chunks": table.chunks.append(chunk), "next_chunk": ordinals[0], "missing": ordinals[1]}
        table = table.model_copy(update=known | {"chunks_done": table.chunks_done + 1})
    return table


def covered(key: int, ranges: list[Range]) -> int:
    return sum(
        (r.lower is None or key > int(r.lower[0])) and (r.upper is None or key <= int(r.upper[0])) for r in ranges
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_ranges_part_the_whole_key_space_however_often_the_snapshot_is_resumed(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.sample(range(1000), rng.randrange(0, 60))
    largest = (str(max(rows)),) if rows else None
    empty = SnapshotTable(table_id=7)
    run, done = walk(c.begin("s", empty, None, None), rows, rng.randrange(1, 9), rng, stop_after=rng.randrange(0, 9))
    taken = after(SnapshotTable(table_id=7, started=True, max_key=largest), done)
    for _ in range(4):
        logged = [registered(r.ordinal, r.lower, r.upper) for r in done]
        rng.shuffle(logged)
        table = SnapshotTable(table_id=7, started=bool(logged), max_key=largest, chunks=AppendList(logged))
        run, more = walk(
            c.begin("s", table, None, None), rows, rng.randrange(1, 9), rng, stop_after=rng.randrange(0, 5)
        )
        done, taken = done + more, after(taken, more)
    table = SnapshotTable(
        table_id=7, started=bool(done), max_key=largest,
        chunks=AppendList(registered(r.ordinal, r.lower, r.upper) for r in done),
    )  # fmt: skip
    run, more = walk(c.begin("s", table, None, None), rows, 5, rng)
    done += more
    after(taken, more)
    assert run.phase is c.Phase.DONE
    assert len({r.ordinal for r in done}) == len(done)
    assert [covered(key, done) for key in range(-5, 1010)] == [1] * 1015


@pytest.mark.parametrize("seed", range(60))
def test_a_sample_takes_the_same_ranges_however_often_it_is_resumed_and_none_twice(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.sample(range(1000), 200)
    run = c.begin(f"s{seed}", SnapshotTable(table_id=7), None, None, verify=True, sample=0.3)
    run, done = walk(run, rows, 4, rng, stop_after=rng.randrange(0, 9))
    largest = (str(max(rows)),)
    taken = after(SnapshotTable(table_id=7, started=True, max_key=largest), done)
    for stop in (rng.randrange(0, 9), None):
        resumed = c.begin(f"s{seed}", taken, None, None, verify=True, sample=0.3) if taken.chunks else run
        run, more = walk(resumed, rows, 4, rng, stop_after=stop)
        done, taken = done + more, after(taken, more)
    assert run.phase is c.Phase.DONE
    assert all(part.ordinal == 0 or run.takes(part.ordinal) for part in done)
    assert {part.ordinal for part in done} >= {0}, "what lies above the largest key is always read"
    counts = [covered(key, done) for key in range(-5, 1010)]
    assert set(counts) == {0, 1}
    assert 0.1 * 1015 < sum(counts) < 0.6 * 1015


@pytest.mark.parametrize("seed", range(60))
def test_a_sample_of_few_ranges_reads_one_at_least(seed: int) -> None:
    """It said that a table was equal of which it had compared no row."""
    rng = random.Random(seed)
    run = c.begin(f"s{seed}", SnapshotTable(table_id=7), None, None, verify=True, sample=0.01)
    run, done = walk(run, list(range(40)), 4, rng)
    assert run.phase is c.Phase.DONE
    assert len({part.ordinal for part in done} - {0}) >= 1


def test_a_list_of_keys_is_cut_into_chunks_and_resumed_by_ordinal() -> None:
    keys = tuple((str(n),) for n in range(2500))
    run = c.begin(
        "s", SnapshotTable(table_id=7, started=True, chunks=AppendList([registered(1, None, None)])), None, keys
    )
    assert [(r.ordinal, len(r.keys or ())) for r in run.ready] == [(0, 1000), (2, 500)]


def test_a_table_without_a_largest_key_is_one_open_chunk() -> None:
    run = c.step(c.step(c.begin("s", SnapshotTable(table_id=7), None, None), c.EdgePassed()), c.Started(None, 0))
    assert run.ready == (Range(0, None, None),)


def test_a_table_that_is_given_up_ends_only_when_no_read_is_under_way() -> None:
    run = c.begin("s", SnapshotTable(table_id=7, started=True, max_key=("9",)), None, None)
    run = c.step(run, c.ReadBegun(0))
    run = c.step(run, c.GaveUp(FAULT, RecordNumber(1)))
    assert c.next_work(run, 3) is None
    run = c.step(run, c.Registered(0, 5))
    assert isinstance(c.next_work(run, 3), c.RecordFinish)
    assert run.fault == FAULT


def test_a_finished_table_has_nothing_left_to_do() -> None:
    finished = SnapshotTableFinished(snapshot_id="s", table_id=7, chunks=3, complete=True)
    run = c.begin("s", SnapshotTable(table_id=7, finished=finished), None, None)
    assert run.phase is c.Phase.DONE
    assert c.next_work(run, 3) is None


@pytest.mark.parametrize("event", [c.Finished(), c.Cut(("1",)), c.Registered(0, 1), c.ReadBegun(5), c.Started(None, 0)])
def test_an_event_that_does_not_fit_the_phase_raises(event: c.Event) -> None:
    with pytest.raises(IllegalEvent):
        c.step(c.begin("s", SnapshotTable(table_id=7), None, None), event)


def test_chunks_that_neither_link_nor_leave_room_are_refused() -> None:
    with pytest.raises(IllegalEvent, match="chunk 2"):
        gaps_of([registered(1, None, ("5",)), registered(2, ("6",), ("9",))], ("9",))
