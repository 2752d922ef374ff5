"""Plain transactions that are taken many at once leave what the same events leave one by one."""

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.changelog.records.terms import Position
from tailrace.errors import TailraceError
from tailrace.sources.mysql.log import fast_path, framing
from tailrace.sources.mysql.log.assembler import Assembler
from tailrace.sources.mysql.log.blocks import EventBlock
from tailrace.sources.mysql.log.events import HEADER, OF_A_SESSION, Kind, Query
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.log_position import StartingPoint
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.position import OWN

Sent = tuple[int, bytes]
"""Kind and body."""
UUIDS = [bytes(range(16)), bytes(16)]
INNER = (Kind.TABLE_MAP, Kind.ROWS_QUERY, Kind.WRITE_ROWS, Kind.UPDATE_ROWS, Kind.DELETE_ROWS_V1, Kind.XID)
"""Newer versions of MariaDB do not say where these end."""
LIMIT = 2_000
"""Bytes of a block: small, so that runs do not fit."""


class Sink:
    """`block_builder.Blocks` that writes down what it is told. Tables whose name begins with c are captured."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.assembler: Assembler
        self.touched = False

    def wants(self, form: bytes) -> bool:
        return form[:1] == b"c"

    def rows(self, block: EventBlock) -> None:
        self.told.append(("rows", list(block.items), list(block.marks)))

    def cut(self, rows: bool | None = None) -> None:
        self.told.append(("cut", rows, self.assembler.log_position.position, self.assembler.executed.state))

    def statement(self, query: Query) -> list[bytes]:
        self.told.append(query.text)
        self.touched = "touch" in query.text
        return [b"c1"] if "empty" in query.text else []

    def undone(self, forms: Iterable[bytes] | None) -> None:
        self.told.append(("undone", None if forms is None else set(forms)))

    def ended(self) -> None:
        self.touched = False
        self.told.append("ended")

    def rotated(self) -> None:
        self.told.append("rotated")

    def crashed(self) -> None:
        self.told.append("crashed")


def query(text: str, variables: bytes = b"") -> Sent:
    head = struct.pack("<IIBHH", 7, 0, 1, 0, len(variables))
    return Kind.QUERY, head + variables + b"d\0" + text.encode()


def table(number: int, form: bytes) -> Sent:
    return Kind.TABLE_MAP, number.to_bytes(6, "little") + b"\0\0" + form


def rows(kind: int, number: int, size: int, flags: int = 1) -> Sent:
    return kind, number.to_bytes(6, "little") + bytes([flags, 0]) + bytes(size)


@st.composite
def changes(draw: st.DrawFn, strange: bool) -> list[Sent]:
    """Table maps and rows; strange: in an order that may be wrong."""
    made: list[Sent] = []
    sizes = st.sampled_from([92, 292, 892])  # with what an event costs beside it, parts of LIMIT
    for _ in range(draw(st.integers(0, 3))):
        number = draw(st.integers(1, 3))
        if not strange or draw(st.integers(0, 9)):
            made.append(table(number, draw(st.sampled_from([b"c1", b"c2" * 40, b"other"]))))
        kinds = st.sampled_from([Kind.WRITE_ROWS, Kind.UPDATE_ROWS, Kind.DELETE_ROWS_V1, Kind.PARTIAL_UPDATE_ROWS])
        others = st.sampled_from([number] * 9 + ([1, 2] if strange else []))
        flags = draw(st.sampled_from([1] * 9 + [7]))
        made += [rows(draw(kinds), draw(others), draw(sizes), flags) for _ in range(draw(st.integers(0, 3)))]
        if draw(st.integers(0, 9)) == 0:
            made.append((Kind.ROWS_QUERY, b"\0"))
    return made


@st.composite
def transaction(draw: st.DrawFn, number: int, mariadb: bool, strange: bool) -> list[Sent]:
    kind = draw(st.sampled_from(["plain"] * 12 + ["variables", "statement", "alone", "rollback", "xa", "savepoint"]))
    opened: list[Sent]
    begin = query("BEGIN", b"\6\3std\4" if kind == "variables" else b"")
    if mariadb:
        flags = {"statement": 1, "alone": 1 | 32}.get(kind, draw(st.sampled_from([0, 2, 4, 12])))
        domain = draw(st.sampled_from([0] * 9 + [7]))
        head = struct.pack("<QIBQ", number, domain, flags, 5)[: None if flags & 2 else 13]
        opened = [(Kind.MARIADB_GTID, head)]
    else:
        uuid = draw(st.sampled_from([UUIDS[0]] * 9 + UUIDS))
        when = draw(st.sampled_from([0, 1_700_000_000_000_000 + number]))
        gno = number + draw(st.sampled_from([0] * 9 + [1000]))
        opened = [(Kind.GTID, struct.pack("<B16sqBqqQ", 0, uuid, gno, 2, 1, 2, when | 1 << 55)[:49]), begin]
    end: Sent = (Kind.XID, bytes(8))
    inner = draw(changes(strange))
    match kind:
        case "statement":
            return [opened[0], query(draw(st.sampled_from(["touch", "CREATE TABLE d.x", "empty c1"])))]
        case "alone":
            return [opened[0], *([] if mariadb else [begin]), query("touch")] + ([] if mariadb else [end])
        case "rollback":
            return [*opened, *inner, query("ROLLBACK")]
        case "savepoint":
            return [*opened, *inner, query("SAVEPOINT a"), *draw(changes(strange)), end]
        case "xa" if not mariadb:
            return [opened[0], query("XA START X'61',X'',1"), *inner, query("XA END X'61',X'',1"),
                    (Kind.XA_PREPARE, b"\1" + bytes(12))]  # fmt: skip
        case _:
            return [*opened, *inner, end]


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Packets of a log."""
    mariadb, strange = draw(st.booleans()), draw(st.integers(0, 4)) == 0
    end = draw(st.sampled_from([500, 2**32 - 1_500]))
    silent = mariadb and draw(st.booleans())
    made = [packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)]
    for number in range(1, draw(st.integers(0, 30)) + 1):
        for kind, body in draw(transaction(number, mariadb, strange)):
            end += HEADER.size + len(body) + 4
            place = 0 if silent and kind in INNER else end % 2**32
            made.append(packet(kind, body, place, draw(st.sampled_from([0] * 30 + [OF_A_SESSION]))))
        if draw(st.integers(0, 20)) == 0:
            made.append(packet(Kind.HEARTBEAT, b"binlog", 0))
    return made


def packet(kind: int, body: bytes, end: int, flags: int = 0) -> bytes:
    event = HEADER.pack(1_600_000_000, kind, 9, HEADER.size + len(body) + 4, end, flags) + body
    event += zlib.crc32(event).to_bytes(4, "little")
    return (len(event) + 1).to_bytes(3, "little") + b"\7\0" + event


def parts(sent: list[bytes], cuts: list[int]) -> Iterator[list[bytes]]:
    bounds = sorted({0, *(cut % (len(sent) + 1) for cut in cuts), len(sent)})
    for first, behind in pairwise(bounds):
        yield sent[first:behind]


def whole(sent: list[bytes]) -> framing.EventBatch:
    data = b"".join(sent)
    found = framing.events(data, framing.packets(data), checksums=True)
    assert found is not None
    return found


STARTS = [
    StartingPoint(Position(3 << 40 | offset), OWN, exact=exact)
    for offset, exact in ((900, True), (900, False), (2**32 - 100, True), (2**32 + 700, True))
]


def outcome(
    folder: Path,
    sent: list[bytes],
    cuts: list[int],
    many: bool,
    *,
    start: StartingPoint = STARTS[0],
    to_end: bool = False,
) -> list[Any]:
    """What the sink was told, and where the assembler stands in the end. `to_end`: open transactions one by one."""
    sink = Sink()
    mariadb = any(p[9] == Kind.MARIADB_GTID for p in sent)
    assembler = Assembler(sink, Executed("", mariadb), XaBuffer(folder), LIMIT, start)
    sink.assembler = assembler
    try:
        for part in parts(sent, cuts):
            found = whole(part)
            if many:
                assembler.feed_many(found.behind(assembler.feed_to_end(found) if to_end else 0))
            else:
                for event in found.each(0, len(found)):
                    assembler.feed(event)
            sink.told.append(
                (
                    assembler.log_position.position,
                    assembler.builder.pending,
                    assembler.builder.divided,
                    assembler.inside,
                )
            )
            sink.told.append(assembler.log_position.anchor)
    except TailraceError as error:
        sink.told.append(str(error))
        return sink.told
    if not assembler.inside:
        assembler.builder.cut()
    return [*sink.told, assembler.log_position.position, assembler.executed.state, assembler.exact]


@given(logs(), st.lists(st.integers(0, 500), max_size=3), st.sampled_from(STARTS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_many_at_once_are_the_same_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[bytes], cuts: list[int], start: StartingPoint
) -> None:
    monkeypatch.setattr(fast_path, "FEWEST", 2)
    expected = outcome(tmp_path / "held", sent, cuts, many=False, start=start)
    assert outcome(tmp_path / "held", sent, cuts, many=True, start=start) == expected
    assert outcome(tmp_path / "held", sent, cuts, many=True, start=start, to_end=True) == expected


W, TWO = Kind.WRITE_ROWS, [table(1, b"c1"), table(2, b"c2")]
SHAPES: dict[str, list[Sent]] = {
    "one row event": [table(1, b"c1"), rows(W, 1, 92)],
    "blocks that are exactly full": [table(1, b"c1"), *[rows(W, 1, 92)] * 5],
    "two tables, one after the other": [table(1, b"c1"), rows(W, 1, 1), table(2, b"other"), rows(W, 2, 5)],
    "two tables, mapped together": [*TWO, rows(W, 1, 3), rows(W, 2, 5)],
    "only of a table that is not captured": [table(1, b"other"), rows(W, 1, 3)],
    "nothing": [],
    "rows without their table": [rows(W, 1, 3)],
}


@pytest.mark.parametrize("odd", SHAPES)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("when", [0, 1_700_000_000_000_000])
@pytest.mark.parametrize("end", [4, 2**32 - 3_000])
def test_one_odd_transaction_amid_plain_ones_changes_nothing(
    tmp_path: Path, odd: str, step: int, when: int, end: int
) -> None:
    sent = [packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)]
    for number in range(61):
        gtid = struct.pack("<B16sqBqqQ", 0, UUIDS[0], 1 + number * step, 2, 1, 2, when and when + number)[:49]
        inner = SHAPES[odd if number in (20, 25, 26) else "one row event"]
        for kind, body in [(Kind.GTID, gtid), query("BEGIN"), *inner, (Kind.XID, bytes(8))]:
            end += HEADER.size + len(body) + 4
            sent.append(packet(kind, body, end % 2**32))
    expected = outcome(tmp_path / "held", sent, [], many=False)
    assert outcome(tmp_path / "held", sent, [], many=True) == expected


@pytest.mark.parametrize("last", [25, 40])
@pytest.mark.parametrize("place", range(5))
def test_an_event_that_ends_at_4_gib_exactly_is_like_any_other(tmp_path: Path, place: int, last: int) -> None:
    """Its header says 0."""
    made: list[Sent] = []
    for number in range(last):
        gtid = struct.pack("<B16sqBqqQ", 0, UUIDS[0], 1 + number, 2, 1, 2, 0)[:49]
        made += [(Kind.GTID, gtid), query("BEGIN"), table(1, b"c1"), rows(W, 1, 92), (Kind.XID, bytes(8))]
    sizes = [HEADER.size + len(body) + 4 for _, body in made]
    end = 2**32 - sum(sizes[: 5 * 24 + place + 1])
    sent = [packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)]
    for (kind, body), size in zip(made, sizes, strict=True):
        end += size
        sent.append(packet(kind, body, end % 2**32))
    expected = outcome(tmp_path / "held", sent, [], many=False)
    assert outcome(tmp_path / "held", sent, [], many=True) == expected


def test_transactions_that_follow_each_other_are_taken_together(tmp_path: Path) -> None:
    """Else the test above would compare one by one with one by one."""
    one = [(Kind.GTID, bytes(17) + (5).to_bytes(8, "little") + bytes(24)), query("BEGIN"), table(1, b"c1")]
    sent = [packet(kind, body, 0) for kind, body in [*one, rows(Kind.WRITE_ROWS, 1, 4), (Kind.XID, bytes(8))] * 40]
    (run,) = fast_path.runs(whole(sent))
    assert len(run) == 40 and run.gtids[1].tolist() == [5] * 40


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("gtid", [(Kind.MARIADB_GTID, struct.pack("<QIB", 1, 0, 0)), (Kind.GTID, bytes(49))])
def test_rows_that_are_cut_off_are_an_error_by_name(tmp_path: Path, gtid: Sent, many: bool) -> None:
    cut_off = (Kind.WRITE_ROWS, (1).to_bytes(6, "little"))
    inner = [gtid, query("BEGIN"), table(1, b"c1"), cut_off, (Kind.XID, bytes(8))]
    sent = [packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)]
    sent += [packet(kind, body, 500 + 100 * place) for place, (kind, body) in enumerate(inner)]
    assert "rows that are cut off" in str(outcome(tmp_path / "held", sent, [], many=many)[-1])


def test_they_are_also_where_only_their_first_events_say_where_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, end = [packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)], 500
    for number in range(1, 41):
        gtid = (Kind.MARIADB_GTID, struct.pack("<QIB", number, 0, 0))
        for kind, body in (gtid, table(1, b"c1"), rows(Kind.WRITE_ROWS, 1, 4), (Kind.XID, bytes(8))):
            end += HEADER.size + len(body) + 4
            sent.append(packet(kind, body, 0 if kind in INNER else end))
    expected, fed, feed = outcome(tmp_path / "held", sent, [], many=False), list[int](), Assembler.feed

    def counted(self: Assembler, event: framing.Event) -> None:
        fed.append(event[0])
        feed(self, event)

    monkeypatch.setattr(Assembler, "feed", counted)
    assert outcome(tmp_path / "held", sent, [], many=True) == expected
    assert fed.count(Kind.MARIADB_GTID) < 10, "the one that fills a block, each time"


def test_only_the_open_transaction_is_fed_to_its_end(tmp_path: Path) -> None:
    opened = [(Kind.GTID, bytes(17) + (5).to_bytes(8, "little") + bytes(24)), query("BEGIN"), table(1, b"c1")]
    ended = [rows(Kind.WRITE_ROWS, 1, 4), rows(Kind.WRITE_ROWS, 1, 4), (Kind.XID, bytes(8))]
    rotate = packet(Kind.ROTATE, (4).to_bytes(8, "little") + b"binlog.000003", 0)
    sink = Sink()
    assembler = sink.assembler = Assembler(sink, Executed("", mariadb=False), XaBuffer(tmp_path), LIMIT, STARTS[0])
    assembler.feed_many(whole([rotate, *(packet(kind, body, 0) for kind, body in opened)]))
    rest = whole([packet(kind, body, 0) for kind, body in [*ended, *opened, *ended]])
    assert assembler.feed_to_end(rest) == 3 and not assembler.inside
    assert assembler.feed_to_end(rest.behind(3)) == 0, "between transactions there is nothing to end"
    assembler.feed_many(rest.behind(3))
    assembler.builder.cut()
    (_, block, marks) = sink.told[-2]
    assert [len(block), [mark.at for mark in marks]] == [4, [0, 2]]


@given(logs().map(b"".join), st.integers(0, 2000))
@settings(max_examples=30, deadline=None)
def test_whole_packets_are_found_and_no_others(data: bytes, length: int) -> None:
    every, found = framing.packets(data), framing.packets(data[:length])
    assert found == [place for place in every if place <= length]


@given(st.integers(0, 2), st.integers(4, 36), st.integers(0, 7))
def test_damaged_events_are_left_to_the_reader_of_single_ones(number: int, place: int, bit: int) -> None:
    one = packet(Kind.XID, bytes(8), 500)
    places = [i * len(one) for i in range(4)]
    assert framing.events(one * 3, places, checksums=True) is not None
    damaged = bytearray(one * 3)
    damaged[number * len(one) + min(place, len(one) - 1)] ^= 1 << bit
    assert framing.events(bytes(damaged), places, checksums=True) is None
