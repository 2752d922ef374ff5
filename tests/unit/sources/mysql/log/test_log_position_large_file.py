"""A file of the log that is larger than 4 GiB: ends in its events' headers go round there."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typing_extensions import override
from unit.sources.mysql.log import test_assembler
from unit.sources.mysql.log.test_assembler import END, file, gtid, mariadb_prepared, mysql_gtid, row

from tailrace.changelog.records.terms import Position
from tailrace.errors import PositionLost
from tailrace.sources.mysql.log.assembler import Assembler
from tailrace.sources.mysql.log.blocks import EventBlock
from tailrace.sources.mysql.log.events import Kind
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.log.log_position import StartingPoint
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.position import OWN

GIB = 1 << 30
ROUND = 4 * GIB
SMALL = 100
"""Bytes of an event, whatever its body."""
Sent = list[tuple[int, bytes]]


class Sink(test_assembler.Sink):
    def __init__(self) -> None:
        super().__init__()
        self.begins: dict[bytes, int] = {}
        """By a row's first byte: where its transaction begins, by which chunks know whether they saw it."""

    @override
    def rows(self, block: EventBlock) -> None:
        super().rows(block)
        self.begins |= {block.items[mark.at].body[8:9]: mark.number for mark in block.marks}


@dataclass
class Log:
    """A file as the server sends it: `end` is where it has come to, whatever the headers say."""

    end: int = 0
    silent: bool = False
    """Events inside of a transaction do not say where they end, as newer versions of MariaDB have it."""
    sent: list[Event] = field(default_factory=list)

    def head(self) -> "Log":
        """The file is named by words of the server's own, which have no place; it begins with its description."""
        rotate, description = file(7)
        self.sent.append((rotate[0], 1, 7, SMALL, 0, rotate[1]))
        self.end = 4
        self._add(description, SMALL, True)
        self._add((Kind.MARIADB_GTID_LIST, bytes(4)), SMALL, True)
        return self

    def add(self, events: Sent, larger: int = 0) -> "Log":
        """`larger`: bytes by which its last row event is."""
        for i, event in enumerate(events):
            size = SMALL + larger if larger and i == len(events) - 2 else SMALL
            while size > GIB:  # no event is larger
                self._add((Kind.MARIADB_ANNOTATE_ROWS, b""), GIB, not self.silent)
                size -= GIB
            self._add(event, size, i in (0, len(events) - 1) or not self.silent)
        return self

    def _add(self, event: tuple[int, bytes], size: int, says: bool) -> None:
        self.end += size
        self.sent.append((event[0], 1, 7, size, self.end % ROUND if says else 0, event[1]))


def transaction(number: int, name: bytes) -> Sent:
    return [gtid(number), *row(name), END]


def at(offset: int) -> Position:
    return OWN.of(".7", offset)


def fed(folder: Path, sent: list[Event], start: StartingPoint, state: str = "") -> tuple[Sink, Assembler]:
    mariadb = not any(event[0] == Kind.GTID for event in sent)
    sink, executed = Sink(), Executed(state, mariadb)
    sink.executed = executed
    assembler = Assembler(sink, executed, XaBuffer(folder), 10**6, start)
    for event in sent:
        assembler.feed(event)
    assembler.builder.cut()
    return sink, assembler


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("size", [2 * GIB, 4 * GIB - 500, 4 * GIB, 5 * GIB, 11 * GIB])
def test_a_restart_behind_a_large_transaction_loses_nothing_of_what_follows(
    tmp_path: Path, size: int, silent: bool
) -> None:
    """The server begins with the file's head, and leaves out what was read."""
    log = Log(silent=silent).head().add(transaction(1, b"s")).add(transaction(2, b"t"), larger=size)
    first, before = fed(tmp_path / "held", log.sent, StartingPoint(Position(0), OWN))
    recorded = before.log_position.position
    assert (first.rows_of, recorded) == ([b"s", b"t"], at(log.end))
    head, begins = Log().head().sent, log.end
    log.sent = []
    log.add(transaction(3, b"u")).add(transaction(4, b"v"))
    again, after = fed(tmp_path / "held", [*head, *log.sent], StartingPoint(recorded, OWN), before.executed.state)
    assert (again.rows_of, after.executed.state) == ([b"u", b"v"], "0-7-4")
    assert again.begins == {b"u": at(begins), b"v": at(begins + 4 * SMALL)} and after.log_position.position == at(
        log.end
    )


def test_a_chunk_that_was_read_behind_a_large_transaction_has_not_seen_the_next_one(tmp_path: Path) -> None:
    """Counted without the bytes of events that do not say where they end, it would begin 4 GiB lower."""
    log = Log(silent=True).head().add(transaction(1, b"t"), larger=6 * GIB)
    begins = log.end
    log.add(transaction(2, b"u"))
    sink, assembler = fed(tmp_path / "held", log.sent, StartingPoint(Position(0), OWN))
    assert sink.begins == {b"t": at(4 + 2 * SMALL), b"u": at(begins)} and assembler.log_position.position == at(log.end)


@pytest.mark.parametrize("offset", [0, 1_000, 3 * GIB, 5 * GIB])
def test_what_is_recorded_in_an_older_file_is_passed_over(tmp_path: Path, offset: int) -> None:
    """A crash of the server cut a transaction off there."""
    log = Log().head().add(transaction(1, b"a"))
    sink, assembler = fed(tmp_path / "held", log.sent, StartingPoint(OWN.of(".8", offset), OWN))
    assert sink.rows_of == [] and assembler.log_position.position == OWN.of(".8", offset)


def test_in_a_small_file_a_transaction_that_lies_before_the_recorded_place_is_passed_over(tmp_path: Path) -> None:
    """Where two transactions have one number, the server sends what follows the first."""
    log = Log().head().add(transaction(1, b"a"))
    recorded = at(log.end)
    log.add(transaction(2, b"b"))
    sink, assembler = fed(tmp_path / "held", log.sent, StartingPoint(recorded, OWN))
    assert sink.rows_of == [b"b"] and assembler.log_position.position == at(log.end)


def test_a_prepared_transaction_of_a_large_file_is_refused_if_its_place_cannot_be_known(tmp_path: Path) -> None:
    """It may stand before or behind 4 GiB, and so what follows it may be recorded or not."""
    log = Log().head().add(mariadb_prepared(1, b"x"))
    with pytest.raises(PositionLost, match="more than 4 GiB"):
        fed(tmp_path / "held", log.sent, StartingPoint(at(5 * GIB), OWN, exact=False))
    later = StartingPoint(OWN.of(".8", 5 * GIB), OWN, exact=False)
    assert fed(tmp_path / "held", log.sent, later)[1].prepared()


def test_the_state_is_not_exact_before_all_that_is_recorded_has_come_again(tmp_path: Path) -> None:
    """Also if the prepared transaction for whose sake it comes was lost in a crash of the server."""
    log = Log().head().add(mariadb_prepared(1, b"x")).add(transaction(2, b"a")).add(transaction(3, b"b"))
    recorded = at(log.end)
    sink, assembler = fed(tmp_path / "held", log.sent[:-4], StartingPoint(recorded, OWN, exact=False))
    assembler.lost(assembler.prepared())
    assert (assembler.executed.state, assembler.log_position.position, assembler.exact) == ("0-7-2", recorded, False)
    begins = len(log.sent)
    log.add(transaction(4, b"c"))
    for event in log.sent[begins - 4 :]:
        assembler.feed(event)
    assembler.builder.cut()
    assert (sink.rows_of, assembler.executed.state, assembler.exact) == ([b"c"], "0-7-4", True)


def test_mysql_sends_what_lies_before_the_recorded_place_of_a_large_file(tmp_path: Path) -> None:
    """A transaction that was prepared there, or had come between two looks when the change log began."""
    log = Log().head().add([mysql_gtid(1), *row(b"a"), END])
    sink, assembler = fed(tmp_path / "held", log.sent, StartingPoint(at(5 * GIB), OWN))
    assert sink.rows_of == [b"a"] and assembler.log_position.position == at(5 * GIB)
