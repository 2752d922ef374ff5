"""The replay point: parsing snapshots, 64-bit ids, and properties that a wrong text breaks."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.states import logged, table_log
from support.transactions import ids, known, pairs
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import TableLog, TransactionLog
from tailrace.errors import CorruptLog
from tailrace.snapshot.replay import contained_after, contained_through, replay_point
from tailrace.sources.postgresql.visibility import PgSnapshot, parse_snapshot

EPOCH = 2**32


def sees(snapshot: PgSnapshot, xid: int) -> bool:
    return bool(snapshot.sees(ids(xid))[0])


@st.composite
def snapshots(draw: st.DrawFn) -> PgSnapshot:
    xmin = draw(st.integers(1, 20)) + draw(st.sampled_from([0, EPOCH, 3 * EPOCH]))
    xmax = xmin + draw(st.integers(0, 8))
    running = draw(st.sets(st.integers(xmin, xmax - 1))) if xmax > xmin else set()
    return PgSnapshot(xmin, xmax, frozenset(running))


@st.composite
def cases(draw: st.DrawFn) -> tuple[PgSnapshot, TransactionLog, int]:
    snapshot = draw(snapshots())
    xids = draw(st.lists(st.integers(max(1, snapshot.xmin - 3), snapshot.xmax + 3), unique=True, max_size=8))
    first_seqs = sorted(draw(st.sets(st.integers(1, 99), min_size=len(xids), max_size=len(xids))))
    return snapshot, known(xids, first_seqs), 100


@given(snapshots())
def test_a_snapshot_is_read_back_from_its_text(snapshot: PgSnapshot) -> None:
    assert parse_snapshot(str(snapshot)) == snapshot


def test_a_snapshot_is_read_as_the_server_prints_it() -> None:
    assert parse_snapshot("4294968000:4294968004:4294968000,4294968002") == PgSnapshot(
        EPOCH + 704, EPOCH + 708, frozenset({EPOCH + 704, EPOCH + 706})
    )
    assert parse_snapshot("729:729:") == PgSnapshot(729, 729)


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "a:2:", "5:4:", "5:9:9", "5:9:4", "5:9:6,", "-1:2:", "0:1:"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(CorruptLog):
        parse_snapshot(text)


def test_ids_of_another_epoch_are_not_confused() -> None:
    snapshot = parse_snapshot(f"{EPOCH + 5}:{EPOCH + 9}:{EPOCH + 6}")
    assert sees(snapshot, 6) and sees(snapshot, EPOCH + 5)
    assert not sees(snapshot, EPOCH + 6) and not sees(snapshot, 2 * EPOCH + 5)


Point = Callable[[PgSnapshot, TransactionLog, Seq], int]


def check(point: Point, case: tuple[PgSnapshot, TransactionLog, int]) -> None:
    """Nothing unseen lies before the point, and the point itself is unseen or the next sequence."""
    snapshot, transactions, next_seq = case
    found = point(snapshot, transactions, Seq(next_seq))
    invisible = [seq for xid, seq in pairs(transactions) if xid >= snapshot.xmax or xid in snapshot.xip]
    assert all(seq >= found for seq in invisible)
    assert found in invisible or (found == next_seq and not invisible)


@given(cases())
def test_the_replay_point_is_the_first_unseen_change(case: tuple[PgSnapshot, TransactionLog, int]) -> None:
    check(replay_point, case)


@given(cases(), st.integers(0, 99))
def test_what_a_snapshot_sees_behind_the_replay_point_is_told_sequence_by_sequence(
    case: tuple[PgSnapshot, TransactionLog, int], later: int
) -> None:
    """`later`: the point may lie inside a transaction, behind a change of the schema."""
    snapshot, transactions, next_seq = case
    point = max(replay_point(snapshot, transactions, Seq(next_seq)), Seq(later))
    found = contained_after(snapshot, transactions, point, Seq(next_seq - 1))
    told = [seq for first, last in found for seq in range(first, last + 1)]
    starts = pairs(transactions)
    ends = [*(first for _, first in starts[1:]), next_seq][: len(starts)]
    wanted = [
        seq for (xid, first), end in zip(starts, ends, strict=True) if sees(snapshot, xid)
        for seq in range(max(first, point), end)
    ]  # fmt: skip
    assert told == wanted
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found)), "neighbours are one range"


def xip_only(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    return min((s for x, s in pairs(log) if x in snapshot.xip), default=next_seq)


def xmax_only(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    return min((s for x, s in pairs(log) if x >= snapshot.xmax), default=next_seq)


def above_xmax(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    return min((s for x, s in pairs(log)
                if x > snapshot.xmax or x in snapshot.xip), default=next_seq)  # fmt: skip


def last_unseen(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    return max((s for x, s in pairs(log) if not sees(snapshot, x)), default=next_seq)


def window(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    return next_seq


def low_bits(snapshot: PgSnapshot, log: TransactionLog, next_seq: int) -> int:
    seen = PgSnapshot(1, max(2, snapshot.xmax % EPOCH), frozenset())
    return min((s for x, s in pairs(log) if not sees(seen, x % EPOCH)
                and x not in snapshot.xip), default=next_seq)  # fmt: skip


@pytest.mark.parametrize("mutant", [xip_only, xmax_only, above_xmax, last_unseen, window, low_bits])
def test_a_broken_replay_point_is_caught(mutant: Point) -> None:
    from hypothesis import find, settings

    def fails(case: tuple[PgSnapshot, TransactionLog, int]) -> bool:
        try:
            check(mutant, case)
        except AssertionError:
            return True
        return False

    assert fails(find(cases(), fails, settings=settings(max_examples=5000, database=None)))


def table_with(*versions: tuple[int, int, str]) -> TableLog:
    """Of each version: its record, the sequence it comes after, its columns (a letter each)."""

    def schema(version: int, names: str) -> TableSchema:
        columns = tuple(Column(name=name, id=ord(name), source_type="int", type="int32") for name in names)
        return TableSchema(table_id=7, schema_name="s", table_name="t", version=version, columns=columns)

    schemas = [
        logged(schema(number, names), record, after) for number, (record, after, names) in enumerate(versions, 1)
    ]
    return table_log(schemas[0].table, schemas=schemas)


def test_a_chunk_sees_what_came_before_the_column_that_it_has() -> None:
    """An insert from before ADD COLUMN … DEFAULT, replayed for another table's stalled commit, would bring a NULL."""
    table = table_with((1, 0, "a"), (5, 30, "ab"))
    assert contained_through(table, 2, planned=RecordNumber(2)) == 30
    assert contained_through(table, 1, planned=RecordNumber(2)) == 0


def test_a_chunk_of_a_snapshot_planned_after_a_rewrite_sees_what_came_before_it() -> None:
    table = table_with((1, 0, "a"), (5, 30, "a"))
    assert contained_through(table, 2, planned=RecordNumber(6)) == 30
    assert contained_through(table, 2, planned=RecordNumber(5)) == 0, "it may have been read before the rewrite"
    assert contained_through(table, 2, planned=RecordNumber(0)) == 0


def test_a_chunk_sees_what_came_before_rows_that_foreign_keys_have_reached() -> None:
    table = table_with((1, 0, "a")).model_copy(update={"cascaded_seq": Seq(40)})
    assert contained_through(table, 1, planned=RecordNumber(2)) == 40
