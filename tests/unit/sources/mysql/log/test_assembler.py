"""A file of the log that begins inside a transaction: the server crashed while it wrote it, and rolled it back."""

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from tailrace.changelog.records.terms import Position
from tailrace.sources.mysql.log.assembler import Assembler
from tailrace.sources.mysql.log.blocks import EventBlock
from tailrace.sources.mysql.log.events import Kind, Query
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.log.log_position import StartingPoint
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.position import OWN

FORM, ANY = b"captured", b"any table"
SMALL, LARGE = 100, 3_000
LIMIT = 2_000
"""Bytes of a block: a large row fills it."""


class Sink:
    """`block_builder.Blocks` that keeps the rows' first bytes and what was undone."""

    def __init__(self) -> None:
        self.rows_of: list[bytes] = []
        self.undone_forms: set[bytes] = set()
        self.crashes: list[int] = []
        """Behind how many rows."""
        self.touched = False
        self.executed: Executed | None = None
        self.states: list[str] = []
        """Of the records."""

    def wants(self, form: bytes) -> bool:
        return True

    def rows(self, block: EventBlock) -> None:
        self.rows_of += [event.body[8:9] for event in block.items]

    def cut(self, rows: bool | None = None) -> None:
        assert self.executed is not None
        self.states.append(self.executed.state)

    def statement(self, query: Query) -> list[bytes]:
        self.touched = self.touched or query.text.startswith("UPDATE")
        return []

    def undone(self, forms: Iterable[bytes] | None) -> None:
        self.undone_forms |= {ANY} if forms is None else set(forms)
        self.touched = bool(self.undone_forms)

    def crashed(self) -> None:
        self.crashes.append(len(self.rows_of))
        self.touched = True

    def ended(self) -> None:
        self.touched = False

    def rotated(self) -> None: ...


def gtid(number: int) -> tuple[int, bytes]:
    return Kind.MARIADB_GTID, struct.pack("<QIB", number, 0, 0)


def statement(text: str) -> tuple[int, bytes]:
    return Kind.QUERY, struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0" + text.encode()


def row(name: bytes, size: int = SMALL) -> list[tuple[int, bytes]]:
    number = b"\1" + bytes(5)
    return [(Kind.TABLE_MAP, number + b"\0\0" + FORM), (Kind.WRITE_ROWS_V1, number + b"\1\0" + name * size)]


def file(number: int) -> list[tuple[int, bytes]]:
    named = (4).to_bytes(8, "little") + f"binlog.{number:06}".encode()
    return [(Kind.ROTATE, named), (Kind.FORMAT_DESCRIPTION, bytes(60))]


END = (Kind.XID, bytes(8))


def fed(
    folder: Path,
    sent: list[tuple[int, bytes]],
    unended: Position | None = None,
    *,
    closes: Kind | None = None,
    mariadb: bool = True,
    recorded: tuple[str, Position] = ("", Position(0)),
) -> tuple[Sink, Assembler]:
    """`closes`: what stands at the end of each file. `recorded`: state and position, of which a prepared transaction
    comes again."""
    sink, (state, position) = Sink(), recorded
    start = StartingPoint(position, OWN, unended, exact=not position)
    sink.executed = Executed(state, mariadb)
    assembler = Assembler(sink, sink.executed, XaBuffer(folder), LIMIT, start)
    end = 0
    for i, (kind, body) in enumerate(sent):
        if i and kind == Kind.ROTATE and closes is not None:
            assembler.feed((closes, 0, 7, 27, end + 27, body if closes == Kind.ROTATE else b""))
        size = len(body) + 19
        end = 0 if kind == Kind.ROTATE else end + size
        event: Event = (kind, 0, 7, size, end, body)
        assembler.feed(event)
    assembler.builder.cut()
    return sink, assembler


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_transaction_that_its_file_does_not_end_never_happened(tmp_path: Path, size: int) -> None:
    """What segments have of it already is read over."""
    sent = [*file(3), gtid(1), *row(b"a"), END, gtid(2), *row(b"b", size), *file(4), gtid(2), *row(b"c"), END]
    sink, assembler = fed(tmp_path / "held", sent)
    assert sink.rows_of == ([b"a", b"c"] if size == SMALL else [b"a", b"b", b"c"])
    assert sink.undone_forms == (set() if size == SMALL else {FORM})
    assert sink.crashes == [0 if size == SMALL else 2]
    assert assembler.executed.state == "0-7-2" and not assembler.inside and not assembler.builder.divided


def test_its_number_counts_only_if_it_is_given_again(tmp_path: Path) -> None:
    sink, assembler = fed(tmp_path / "held", [*file(3), gtid(1), *row(b"a"), END, gtid(2), *row(b"b"), *file(4)])
    assert (sink.rows_of, assembler.executed.state) == ([b"a"], "0-7-1")
    assert assembler.log_position.position == 4 << 40 | 79
    assert assembler.log_position.anchor is not None and assembler.log_position.anchor.at == 4 << 40


@pytest.mark.parametrize("closes", [Kind.STOP, Kind.ROTATE, None])
def test_a_file_without_an_end_was_left_by_a_crash(tmp_path: Path, closes: Kind | None) -> None:
    """Whatever is finished before it comes first."""
    sent = [*file(3), gtid(1), *row(b"a"), END, *file(4), gtid(2), *row(b"b"), END]
    sink, assembler = fed(tmp_path / "held", sent, closes=closes)
    assert (sink.rows_of, sink.touched) == ([b"a", b"b"], False)
    assert bool(sink.crashes) == (closes is None) and assembler.executed.state == "0-7-2"


@pytest.mark.parametrize(("number", "crashes"), [(3, 1), (4, 0), (5, 0)])
def test_a_file_that_was_read_to_its_end_before_a_start_is_not_sent_again(
    tmp_path: Path, number: int, crashes: int
) -> None:
    sink, _ = fed(tmp_path / "held", [*file(4), gtid(2), *row(b"b"), END], OWN.of(f".{number}", 0))
    assert len(sink.crashes) == crashes


def test_the_log_teaches_which_servers_wrote_to_a_domain(tmp_path: Path) -> None:
    known = struct.pack("<IIIQIIQ", 2, 0, 5, 4, 0, 7, 9)
    _, assembler = fed(tmp_path / "held", [*file(3), gtid(10), *row(b"a"), END, (Kind.MARIADB_GTID_LIST, known)])
    assert (assembler.executed.state, assembler.executed.place) == ("0-5-4,0-7-10", "0-7-10")


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
def test_an_xa_transaction_that_is_not_prepared_by_the_log_may_change_any_table(tmp_path: Path, decision: str) -> None:
    """A server that forgot in a crash that it had decided it does so again."""
    sink, assembler = fed(tmp_path / "held", [*file(3), gtid(1), statement(f"XA {decision} X'78',X'',1")])
    assert (sink.undone_forms, sink.touched) == ({ANY}, False)
    assert assembler.executed.state == "0-7-1" and not assembler.inside


def mysql_gtid(number: int) -> tuple[int, bytes]:
    return Kind.GTID, struct.pack("<B16sqBqq7s7s", 0, bytes(16), number, 2, 0, 0, bytes(7), bytes(7))


def prepared(number: int, name: bytes) -> list[tuple[int, bytes]]:
    xid = "X'78',X'',1"
    inside = [statement(f"XA START {xid}"), *row(name), statement(f"XA END {xid}")]
    return [mysql_gtid(number), *inside, (Kind.XA_PREPARE, bytes(13))]


def test_a_prepared_transaction_whose_xid_begins_again_holds_the_log_no_longer(tmp_path: Path) -> None:
    """A crash took it back. Its number left out of what was had, the server would need its log for ever."""
    decided = [mysql_gtid(3), statement("XA COMMIT X'78',X'',1")]
    sent = [*file(3), *prepared(1, b"a"), *file(4), *prepared(2, b"b"), *decided]
    sink, assembler = fed(tmp_path / "held", sent, mariadb=False)
    assert sink.rows_of == [b"b"] and assembler.executed.state.endswith(":1-3")


def test_a_statement_of_a_prepared_transaction_is_told_before_a_record_leads_past_it(tmp_path: Path) -> None:
    """After a restart MariaDB's log is passed over up to that record."""
    inside = [statement("XA START X'78',X'',1"), statement("UPDATE t SET v = 1"), statement("XA END X'78',X'',1")]
    sent = [*file(3), mysql_gtid(1), *row(b"a"), END, mysql_gtid(2), *inside, (Kind.XA_PREPARE, bytes(13))]
    sink, assembler = fed(tmp_path / "held", sent, mariadb=False)
    assert not sink.touched and sink.rows_of == [b"a"]
    assert assembler.executed.state.endswith(":1") and not assembler.inside


def mariadb_prepared(number: int, name: bytes) -> list[tuple[int, bytes]]:
    head = struct.pack("<QIB", number, 0, 0x40) + struct.pack("<IBB", 1, len(name), 0) + name
    end = statement(f"XA END X'{name.hex()}',X'',1")
    return [(Kind.MARIADB_GTID, head), *row(name), end, (Kind.XA_PREPARE, bytes(13))]


def mariadb_decided(number: int, name: bytes, decision: str = "COMMIT") -> list[tuple[int, bytes]]:
    head = struct.pack("<QIB", number, 0, 0x81)
    return [(Kind.MARIADB_GTID, head), statement(f"XA {decision} X'{name.hex()}',X'',1")]


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
def test_the_log_is_needed_from_the_oldest_transaction_on_that_is_prepared_still(tmp_path: Path, decision: str) -> None:
    """Where one is always prepared, it would be needed from the first one on for ever."""
    sent = [*file(3), gtid(1), *row(b"a"), END, *mariadb_prepared(2, b"x"), *mariadb_prepared(3, b"y")]
    steps = [
        ([], "0-7-1"),
        (mariadb_decided(4, b"x", decision), "0-7-2"),
        ([*mariadb_prepared(5, b"z"), *mariadb_decided(6, b"y", decision)], "0-7-4"),
        (mariadb_decided(7, b"z", decision), "0-7-7"),
    ]
    for step, state in steps:
        sent += step
        _, assembler = fed(tmp_path / "held", sent)
        assert assembler.executed.state == state and assembler.exact == (not assembler.prepared())


def test_of_prepared_transactions_that_are_decided_in_another_order_the_oldest_counts(tmp_path: Path) -> None:
    sent = [*file(3), *(event for n, name in enumerate((b"x", b"y", b"z")) for event in mariadb_prepared(n + 1, name))]
    states = []
    for number, name in ((4, b"y"), (5, b"x"), (6, b"z")):
        sent += mariadb_decided(number, name)
        states.append(fed(tmp_path / "held", sent)[1].executed.state)
    assert states == ["", "0-7-2", "0-7-6"]


def test_what_was_decided_is_passed_over_when_an_older_one_that_is_prepared_comes_again(tmp_path: Path) -> None:
    """Of such a decision only the second half comes, where the transaction was prepared before the oldest."""
    x, y, z = (mariadb_prepared(n, name) for n, name in ((1, b"x"), (2, b"y"), (3, b"z")))
    again = [*y, *mariadb_decided(4, b"x"), *z, *mariadb_decided(5, b"z")]
    first, assembler = fed(tmp_path / "held", [*file(3), *x, *again])
    recorded = assembler.executed.state, assembler.log_position.position
    assert (first.rows_of, recorded[0], assembler.exact) == ([b"x", b"z"], "0-7-1", False)
    not_sent = (Kind.MARIADB_CHECKPOINT, bytes(sum(len(body) + 19 for _, body in x) - 19))
    sent = [*file(3), not_sent, *again, *mariadb_decided(6, b"y")]
    second, assembler = fed(tmp_path / "held", sent, recorded=recorded)
    assert (second.rows_of, second.undone_forms, assembler.executed.state) == ([b"y"], set(), "0-7-6")


@pytest.mark.parametrize("mariadb", [True, False])
def test_a_prepared_transaction_is_needed_until_the_record_of_its_decision(tmp_path: Path, mariadb: bool) -> None:
    """What is finished before gets a record of its own where tables are read again: some of its rows were undone."""
    xid = "X'78',X'',1"
    undone = [
        *row(b"x"),
        statement("ROLLBACK TO SAVEPOINT a"),
        statement(f"XA END {xid}"),
        (Kind.XA_PREPARE, bytes(13)),
    ]
    if mariadb:
        sent = [*file(3), gtid(1), *row(b"a"), END, mariadb_prepared(2, b"x")[0], *undone]
        sent += [gtid(3), *row(b"b"), END, *mariadb_decided(4, b"x")]
    else:
        sent = [*file(3), mysql_gtid(1), *row(b"a"), END, mysql_gtid(2), statement(f"XA START {xid}"), *undone]
        sent += [mysql_gtid(3), *row(b"b"), END, mysql_gtid(4), statement(f"XA COMMIT {xid}")]
    sink, _ = fed(tmp_path / "held", sent, mariadb=mariadb)
    assert sink.undone_forms == {FORM}
    before, *_, behind = sink.states
    assert (before[-3:], behind[-3:]) == (("7-1", "7-4") if mariadb else ("1:3", "1-4"))
