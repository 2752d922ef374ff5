"""The assembler against a naive interpreter: whole transactions in commit order, without what was aborted."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import pgoutput_messages as pg
from tailrace.changelog.records.terms import Position
from tailrace.errors import SourceRefused
from tailrace.sources.postgresql.log import assembler as log_assembler
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.assembler import Assembler
from tailrace.sources.postgresql.log.blocks import MessageBlock
from tailrace.sources.postgresql.log.spill import Spill


class Collect:
    """A sink that keeps (xid, message) and where records end."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.recorded: list[tuple[int, bytes]] = []
        self.cuts: list[tuple[int, int]] = []
        self.largest = 0

    def rows(self, block: MessageBlock) -> None:
        assert block.marks[0].at == 0
        self.largest = max(self.largest, block.size)
        for index, message in enumerate(block.items):
            mark = [m for m in block.marks if m.at <= index][-1]
            self.taken.append((mark.number, message))

    def cut(self, position: int, rows: bool = True) -> None:
        if rows:
            self.recorded += self.taken
            self.taken = []
        self.cuts.append((position, len(self.recorded)))


def row(number: int) -> bytes:
    return pg.insert(1, [str(number)])


class Script:
    """Random transactions, as the server would send them, and what must come out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.messages: list[bytes] = []
        self.expected: list[tuple[int, bytes]] = []
        self.ends: dict[int, int] = {}
        """Position -> rows expected up to it."""
        self.open: dict[int, list[tuple[int, bytes]]] = {}
        self.lsn = 100
        self.next_xid = 1000
        self.rows = 0

    def step(self) -> None:
        choice = self.chance.random()
        if choice < 0.3:
            self.plain()
        elif choice < 0.65:
            self.piece()
        elif choice < 0.75 and self.open:
            self.abort_some()
        elif self.open:
            self.decide()

    def row(self) -> bytes:
        self.rows += 1
        return row(self.rows)

    def xid(self) -> int:
        self.next_xid += 1
        return self.next_xid

    def plain(self) -> None:
        xid, rows = self.xid(), [self.row() for _ in range(self.chance.randint(0, 6))]
        self.messages += [pg.begin(xid), *rows, pg.commit(self.end())]
        self.finished([(xid, r) for r in rows])

    def piece(self) -> None:
        top = self.chance.choice([*self.open, self.xid()])
        rows = self.open.setdefault(top, [])
        self.messages.append(pg.stream_start(top))
        for _ in range(self.chance.randint(1, 6)):
            sub = self.chance.choice([top, self.xid(), *(x for x, _ in rows)])
            message = self.row()
            rows.append((sub, message))
            self.messages.append(pg.with_xid(message, sub))
        self.messages.append(pg.STREAM_STOP)

    def abort_some(self) -> None:
        top = self.chance.choice(list(self.open))
        subs = sorted({x for x, _ in self.open[top]} - {top})
        if subs:
            sub = self.chance.choice(subs)
            self.open[top] = [(x, m) for x, m in self.open[top] if x != sub]
            self.messages.append(pg.stream_abort(top, sub))

    def decide(self) -> None:
        top = self.chance.choice(list(self.open))
        rows = self.open.pop(top)
        if self.chance.random() < 0.3:
            self.messages.append(pg.stream_abort(top, top))
            return
        self.messages.append(pg.stream_commit(top, self.end()))
        self.finished([(top, m) for _, m in rows])

    def end(self) -> int:
        self.lsn += 10
        return self.lsn

    def finished(self, rows: list[tuple[int, bytes]]) -> None:
        self.expected += rows
        self.ends[self.lsn] = len(self.expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(100, 3000), st.integers(1, 400))
def test_it_agrees_with_a_naive_interpreter_whatever_the_limits(seed: int, limit: int, in_memory: int) -> None:
    chance = random.Random(seed)
    script, sink = Script(chance), Collect()
    for _ in range(40):
        script.step()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailrace.sources.postgresql.log.spill.MEMORY_LIMIT", in_memory)
        assembler = Assembler(sink, Spill(Path(folder) / "spill"), lambda xid: xid, limit)
        rest = script.messages
        while rest:
            # As a read brings them: some are taken as runs of whole transactions, some one by one.
            many = chance.choice([1, 2, 5, len(rest)])
            assembler.feed_many(rest[:many])
            rest = rest[many:]
            if chance.random() < 0.05:
                assembler.builder.cut()
        assembler.builder.cut()
    assert sink.recorded == script.expected
    assert sink.taken == []
    for position, rows in sink.cuts:
        assert rows == script.ends.get(position, 0)
    assert sink.largest <= limit + 200


def test_spilled_files_go_when_their_transaction_is_decided(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    assembler = Assembler(Collect(), spill, lambda xid: xid, 1 << 20)
    big = pg.insert(1, ["x" * 300_000])
    for top in (7, 8):
        for message in (pg.stream_start(top), pg.with_xid(big, top), pg.STREAM_STOP):
            assembler.feed(message)
    assert spill.undecided == 2
    assert len(list((tmp_path / "spill").iterdir())) == 2
    assembler.feed(pg.stream_abort(7, 7))
    assembler.feed(pg.stream_commit(8, 100))
    assert spill.undecided == 0
    assert list((tmp_path / "spill").iterdir()) == []


@pytest.mark.parametrize(
    "messages",
    [
        [b"x"],
        [b"b" + b"\0" * 30],
        [row(1)],
        [pg.commit(50)],
        [pg.begin(1), pg.begin(2)],
        [pg.stream_start(1), pg.begin(2)],
        [pg.STREAM_STOP],
        [pg.begin(1), pg.stream_commit(1, 50)],
        [pg.begin(1), b"Q"],
        [pg.begin(1), row(1), pg.commit(50)[:-1]],
        [pg.begin(1)[:-1], row(1), pg.commit(50)],
        [pg.begin(1), row(1), pg.commit(50), row(2)],
    ],
)
def test_an_unknown_or_misplaced_message_stops_capture(messages: list[bytes], tmp_path: Path) -> None:
    assembler = Assembler(Collect(), Spill(tmp_path / "spill"), lambda xid: xid, 1000)
    with pytest.raises(SourceRefused, match="replication stream"):
        assembler.feed_many(messages)


def test_a_position_seen_inside_a_transaction_does_not_count(tmp_path: Path) -> None:
    assembler = Assembler(Collect(), Spill(tmp_path / "spill"), lambda xid: xid, 1000)
    assembler.feed(pg.begin(1))
    assembler.observe(Position(500))
    assert assembler.position == 0
    assembler.feed(pg.commit(90))
    assembler.observe(Position(120))
    assert assembler.position == 120


def test_a_transaction_is_divided_from_its_first_full_block_to_its_commit(tmp_path: Path) -> None:
    assembler = Assembler(Collect(), Spill(tmp_path / "spill"), lambda xid: xid, 300)
    seen = []
    for message in (pg.begin(1), *(row(n) for n in range(10)), pg.commit(90)):
        assembler.feed(message)
        seen.append(assembler.builder.divided)
    assert seen[0] is False and seen[-1] is False
    assert True in seen and seen[:-1] == sorted(seen[:-1])


@pytest.mark.parametrize("many", [0, 1000])
def test_a_streams_announcement_counts_after_its_commit_unless_a_newer_one_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(log_assembler, "MANY_RELATIONS", many)
    sink = Collect()
    assembler = Assembler(sink, Spill(tmp_path / "spill"), lambda xid: xid, 1 << 20)
    old, new = pg.relation(1, ["id"], ["id"]), pg.relation(1, ["id", "v"], ["id"])
    for message in (pg.stream_start(5), pg.with_xid(old, 5), pg.with_xid(row(1), 5), pg.STREAM_STOP):
        assembler.feed(message)
    for message in (pg.begin(6), new, pg.insert(1, ["2", "a"]), pg.commit(10)):
        assembler.feed(message)
    assembler.feed(pg.stream_commit(5, 20))
    for message in (pg.begin(7), pg.insert(1, ["3", "b"]), pg.commit(30)):
        assembler.feed(message)
    assembler.builder.cut()
    kinds = [m for _, m in sink.recorded]
    assert kinds == [new, pg.insert(1, ["2", "a"]), old, row(1), new, pg.insert(1, ["3", "b"])]


def test_announcements_are_kept_for_undecided_streams_alone(tmp_path: Path) -> None:
    """A source may describe any number of tables that come and go."""
    relations = log_assembler.Relations()
    assembler = Assembler(Collect(), Spill(tmp_path / "spill"), lambda xid: xid, 1 << 20)
    assembler._relations = relations
    for number in range(1, 5 * log_assembler.MANY_RELATIONS):
        for message in (pg.begin(number), pg.relation(number, ["id"], ["id"]), pg.commit(10 * number)):
            assembler.feed(message)
        assembler.builder.cut()
        assert len(relations) <= log_assembler.MANY_RELATIONS + 1


@pytest.mark.parametrize(
    ("low", "reference", "full"),
    [
        (5, (3 << 32) | 10, (3 << 32) | 5),
        (0xFFFFFFF0, 4 << 32, (3 << 32) | 0xFFFFFFF0),
        (3, (3 << 32) | 0xFFFFFFF0, (4 << 32) | 3),
        (700, 800, 700),
    ],
)
def test_short_xids_become_the_long_ones_nearest_to_the_servers(low: int, reference: int, full: int) -> None:
    assert pgoutput.extend_xid(low, reference) == full
