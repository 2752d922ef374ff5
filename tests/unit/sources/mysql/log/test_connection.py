"""Events out of what the socket gives, in parts of any size."""

import struct
import time
import zlib
from collections.abc import Iterable

import pytest

from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.mysql.log.connection import LogConnection
from tailrace.sources.mysql.log.events import HEADER, Kind
from tailrace.sources.mysql.log.framing import FULL_PACKET, Event

TLS_RECORD = 16 << 10
"""Bytes that a read from a TLS connection gives at most."""


class Socket:
    def __init__(self, data: bytes, part: int) -> None:
        self._parts = iter([data[at : at + part] for at in range(0, len(data), part)])

    def recv(self, most: int) -> bytes:
        found = next(self._parts, None)
        if found is None:
            raise BlockingIOError
        return found


def event(size: int) -> bytes:
    whole = HEADER.pack(0, Kind.ROWS_QUERY, 1, size, 0, 0) + b"x" * (size - HEADER.size - 4)
    return whole + struct.pack("<I", zlib.crc32(whole))


def packets(events: Iterable[bytes]) -> bytes:
    """As the server frames them; one that fills its packet goes on in another."""
    framed = bytearray()
    for one in events:
        payload = b"\0" + one
        for at in range(0, len(payload) + 1, FULL_PACKET):
            part = payload[at : at + FULL_PACKET]
            framed += len(part).to_bytes(3, "little") + b"\0" + part
    return bytes(framed)


def read(data: bytes, part: int) -> list[int]:
    """The sizes of the events that a connection makes of it."""
    log = object.__new__(LogConnection)  # which begins with a server's answers
    log._buffer, log._awaited, log._long, log._checksums = bytearray(), 0, [], True
    log._socket = Socket(data, part)
    sizes: list[int] = []

    def take(found: Event) -> None:
        sizes.append(found[3])

    while not log.read(take, 1 << 30, 60.0):
        pass
    return sizes


@pytest.mark.parametrize("part", [1, 2, 3, 5, 64, 1 << 20])
def test_events_arrive_whole_whatever_the_parts_are(part: int) -> None:
    sizes = [23, 40, 300, 23, 24, 500]
    assert read(packets(map(event, sizes)), part) == sizes


@pytest.mark.parametrize("size", [FULL_PACKET - 2, FULL_PACKET - 1, FULL_PACKET, 2 * FULL_PACKET + 5])
def test_an_event_of_many_packets_arrives_whole(size: int) -> None:
    assert read(packets(map(event, [100, size, 100])), TLS_RECORD) == [100, size, 100]


def test_a_large_packet_in_small_parts_is_not_copied_with_each() -> None:
    """0.1 s; with each of a thousand parts the whole so far: 2 s."""
    data = packets(map(event, [FULL_PACKET - 10] * 2))
    begun = time.process_time()
    assert len(read(data, TLS_RECORD)) == 2
    assert time.process_time() - begun < 0.8


def test_an_event_that_the_server_cannot_send_is_the_end_of_the_position() -> None:
    """It would be asked for again for ever."""
    text = "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; the first event"
    with pytest.raises(PositionLost, match=r"larger than 1 GiB .*max_allowed_packet.*resync"):
        refused(text)


def test_a_log_whose_end_a_crash_has_cut_off_is_the_end_of_the_position() -> None:
    """MariaDB says so of a file that is not its last, for ever."""
    text = "binlog truncated in the middle of event; consider out of disk space on master; the first event '.' at 4"
    with pytest.raises(PositionLost, match=r"cut off the end of its log .*truncated in the middle.*resync"):
        refused(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (
            1236,
            "A slave with the same server_uuid/server_id as this slave has connected to the master; the first event",
        ),
        (4052, "A slave with the same server_id is already connected; the first event"),
    ],
)
def test_another_reader_with_the_same_number_is_told_with_how_to_find_it(number: int, text: str) -> None:
    with pytest.raises(Retry, match=r"same server id: A slave .*\. Fix: Find the other reader.*mysql\.serverId"):
        refused(text, number)


def test_a_server_that_came_back_without_gtids_is_refused_and_loses_nothing_yet() -> None:
    sender = "The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF"
    with pytest.raises(SourceRefused, match=r"GTID_MODE = OFF instead of ON\. Fix: Set gtid_mode = ON"):
        refused(f"{sender} instead of ON.")


@pytest.mark.parametrize("when", ["AUTO_POSITION = 1", "@@GLOBAL.GTID_MODE = ON"])
def test_what_was_written_without_gtids_cannot_be_had(when: str) -> None:
    """With `gtid_mode` on again the way back was to set it, for ever."""
    text = f"Cannot replicate anonymous transaction when {when}, at file ./binlog.000002, position 157."
    with pytest.raises(PositionLost, match=r"without GTIDs.*binlog\.000002.*resync"):
        refused(text)


def test_a_missing_right_is_told_without_the_protocols_signs() -> None:
    with pytest.raises(
        SourceRefused, match=r"^SourceRefused: Access denied; you need .* Fix: Grant REPLICATION SLAVE;"
    ):
        refused("Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", 1227, b"#42000")


def refused(text: str, number: int = 1236, state: bytes = b"#HY000") -> None:
    packet = b"\xff" + number.to_bytes(2, "little") + state + text.encode()
    read(len(packet).to_bytes(3, "little") + b"\0" + packet, 1 << 16)
