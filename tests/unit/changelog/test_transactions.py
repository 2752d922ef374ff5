"""Ids of transactions, packed in records and in the state: what a source gave comes back, whatever its prefixes are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changelog.records import Transactions
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import TransactionLog
from tailrace.changelog.transactions import TransactionStart

PREFIXES = ["", "3e11fa47-71ca-11e1-9e33-c80aa9429562:", "3e11fa47-71ca-11e1-9e33-c80aa9429562:batch:", "b:"]
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def logs(draw: st.DrawFn) -> list[list[TransactionStart]]:
    """Of each record, what it brings; sequences rise."""
    seq, records = 0, []
    for size in draw(st.lists(st.integers(0, 300), max_size=4)):
        prefixes = draw(st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4))
        numbers = draw(st.lists(INT64, min_size=5, max_size=5))
        starts = [TransactionStart(prefixes[n % len(prefixes)], numbers[n % 5], seq + n) for n in range(size)]
        seq += size
        records.append(starts)
    return records


def folded(records: list[list[TransactionStart]]) -> TransactionLog:
    log = TransactionLog()
    for starts in records:
        log = log.added(Transactions.of(starts))
    return log


@given(logs())
def test_what_records_bring_is_known_in_its_order(records: list[list[TransactionStart]]) -> None:
    wanted = [start for starts in records for start in starts]
    log = folded(records)
    assert log.starts == wanted
    found = [
        (ids.prefixes[place], number, seq)
        for ids, seqs in log.pieces()
        for place, number, seq in zip(ids.prefix.tolist(), ids.number.tolist(), seqs.tolist(), strict=True)
    ]
    assert found == wanted


@given(logs(), st.integers(-1, 1300))
def test_what_began_at_or_below_a_sequence_is_forgotten(records: list[list[TransactionStart]], seq: int) -> None:
    wanted = [start for starts in records for start in starts if start.first_seq > seq]
    log = folded(records)
    assert log.first_after(Seq(seq)) == (wanted[0].first_seq if wanted else None)
    kept = log.removed(Seq(seq))
    assert kept.starts == wanted
    later = TransactionStart("new:", 5, 2000)
    assert kept.added(Transactions.of([later])).starts == [*wanted, later]


@given(logs())
def test_records_and_state_come_back_from_their_documents(records: list[list[TransactionStart]]) -> None:
    for starts in records:
        stored = Transactions.of(starts)
        assert Transactions.model_validate_json(stored.model_dump_json()) == stored
    log = folded(records)
    assert TransactionLog.model_validate_json(log.model_dump_json()) == log


def test_a_source_with_one_prefix_stores_it_once() -> None:
    stored = Transactions.of([TransactionStart("a:", n, n) for n in range(3)])
    assert (stored.prefixes, stored.prefix, stored.numbers) == (("a:",), (), (0, 1, 2))


def test_prefixes_go_with_the_last_transaction() -> None:
    log = folded([[TransactionStart("a:", 1, 1), TransactionStart("b:", 1, 2)]])
    assert log.removed(Seq(1)).prefixes == ("a:", "b:")
    assert log.removed(Seq(2)).prefixes == ()
    assert np.array_equal(log.removed(Seq(2)).rows.lines(), np.empty((0, 3)))
