"""Runs of whole transactions of rows, against the assembler that is fed message by message."""

import random
from pathlib import Path

import pytest

from support import pgoutput_messages as pg
from tailrace.sources.log.blocks import Mark
from tailrace.sources.postgresql.log import fast_path
from tailrace.sources.postgresql.log.assembler import Assembler
from tailrace.sources.postgresql.log.blocks import MessageBlock
from tailrace.sources.postgresql.log.pgoutput import POSTGRES_EPOCH
from tailrace.sources.postgresql.log.spill import Spill

Taken = list[tuple[list[bytes], list[Mark]]]


def row(number: int) -> bytes:
    return pg.insert(1, [str(number)])


class Blocks:
    def __init__(self) -> None:
        self.taken: Taken = []
        self.cuts: list[tuple[int, bool]] = []

    def rows(self, block: MessageBlock) -> None:
        self.taken.append((block.items, block.marks))

    def cut(self, position: int, rows: bool = True) -> None:
        self.cuts.append((position, rows))


def transaction(chance: random.Random, number: int) -> list[bytes]:
    rows = [row(number * 100 + i) for i in range(chance.choice([0, 1, 1, 1, 2, 30]))]
    if chance.random() < 0.1:
        rows.insert(0, pg.relation(1, ["id"], ["id"]))
    return [pg.begin(number, POSTGRES_EPOCH + number), *rows, pg.commit(number * 10)]


@pytest.mark.parametrize("limit", [300, 3_000, 1 << 20])
def test_blocks_and_their_marks_are_those_of_the_slow_way(limit: int, tmp_path: Path) -> None:
    chance = random.Random(limit)
    for round in range(20):
        messages = [m for number in range(1, 60) for m in transaction(chance, number)]
        found: list[tuple[Taken, list[tuple[int, bool]], int]] = []
        for quick in (False, True):
            sink = Blocks()
            spill = Spill(tmp_path / f"{round}{quick}")
            assembler = Assembler(sink, spill, lambda xid: xid + (7 << 32), limit)
            if quick:
                assembler.feed_many(messages)
            else:
                for message in messages:
                    assembler.feed(message)
            assembler.builder.cut()
            found.append((sink.taken, sink.cuts, assembler.position))
        slow, quick_ = found
        assert everything(quick_[0]) == everything(slow[0])
        assert quick_[2] == slow[2]
        if limit > 3_000:
            assert quick_ == slow, "one block, and the same marks"


def everything(taken: Taken) -> list[tuple[int, int, bytes]]:
    """Each message with its transaction, wherever blocks end."""
    found = []
    for items, marks in taken:
        for at, message in enumerate(items):
            mark = [m for m in marks if m.at <= at][-1]
            found.append((mark.number, mark.commit_ts, message))
    return found


def test_runs_end_where_anything_else_comes() -> None:
    whole = [pg.begin(1), row(1), pg.commit(10), pg.begin(2), row(2), row(3), pg.commit(20)]
    empty = [pg.begin(3), pg.commit(30)]
    described = [pg.begin(4), pg.relation(1, ["id"], ["id"]), row(4), pg.commit(40)]
    (first, second) = fast_path.runs([*whole, *empty, *whole, *described, pg.begin(5), row(5)])
    assert (first.first, first.behind, second.first, second.behind) == (0, 7, 9, 16)
    assert first.rows == [row(1), row(2), row(3)] and first.end_lsn == 20
    assert list(first.marks(100, lambda xid: xid)) == [
        Mark(100, "", 1, POSTGRES_EPOCH),
        Mark(101, "", 2, POSTGRES_EPOCH),
    ]


@pytest.mark.parametrize("cut", [0, 2])
def test_what_is_cut_off_is_no_run(cut: int) -> None:
    messages = [pg.begin(1), row(1), pg.commit(10)]
    messages[cut] = messages[cut][:-1]
    assert list(fast_path.runs(messages)) == []
