"""Packets of the log connection as events, one by one or many at once.

Called by `connection`. Many at once cost a fraction of their sum one by one: numpy reads the headers, and all that is
left per event is its place. Whatever is unusual is refused here, without a reason: one by one it is read, or
refused by name.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tailrace.sources.mysql.log.checksums import intact
from tailrace.sources.mysql.log.columns import Buffer
from tailrace.sources.mysql.log.events import CHECKSUM_BYTES, HEADER, OF_A_SESSION, Kind, kind_of
from tailrace.sources.mysql.log.walk import Places

FULL_PACKET = 0xFFFFFF
"""A packet of this length continues in the next one."""
Event = tuple[int, int, int, int, int, bytes]
"""Kind, timestamp, server id, size, end in its file, body without header and checksum."""
_LENGTH = struct.Struct("<I")
_PACKET_HEAD = 5
"""Length, number, and the byte that says that an event follows."""


@dataclass(frozen=True)
class EventBatch:
    """Whole events in log order; all arrays are parallel."""

    buffer: Buffer
    kind: Places
    """The kind as `events.kind_of` returns it."""
    timestamp: Places
    server: Places
    size: Places
    end: Places
    """The end in its file, as its header gives it: 32 bits."""
    at: Places
    """The place where the body begins in the buffer."""
    to: Places
    """The place where it ends."""

    def __len__(self) -> int:
        return len(self.kind)

    def behind(self, first: int) -> "EventBatch":
        """Without the events before this one."""
        if not first:
            return self
        return EventBatch(self.buffer, *(column[first:] for column in self._columns))

    def each(self, first: int, behind: int) -> Iterator[Event]:
        data, part = self.buffer.data, slice(first, behind)
        for kind, timestamp, server, size, end, at, to in zip(*(c[part].tolist() for c in self._columns), strict=True):
            yield kind, timestamp, server, size, end, data[at:to]

    @property
    def _columns(self) -> tuple[Places, ...]:
        return self.kind, self.timestamp, self.server, self.size, self.end, self.at, self.to


def packets(data: bytes) -> list[int]:
    """The places where whole packets begin, and the place behind the last; not further than to one that another one
    continues."""
    found: list[int] = []
    add, unpack = found.append, _LENGTH.unpack_from
    at, last = 0, len(data) - 4
    while at <= last:  # the only work per packet
        length = unpack(data, at)[0] & FULL_PACKET
        if length == FULL_PACKET:
            break
        add(at)
        at += 4 + length
    if at > len(data):
        return found  # the last one is not whole
    add(at)
    return found


def events(data: bytes, places: list[int], checksums: bool) -> EventBatch | None:
    """The events in these packets (`packets`). None: read them one by one."""
    bounds = np.array(places, np.int64)
    start, behind = bounds[:-1] + _PACKET_HEAD, bounds[1:]
    to = behind - CHECKSUM_BYTES if checksums else behind
    if (to - start < HEADER.size).any():
        return None
    buffer = Buffer(data)
    kind, size = _kinds(buffer, start), _number(buffer, start + 9)
    usual = not buffer.bytes[start - 1].any() and not (kind == Kind.FORMAT_DESCRIPTION).any()
    if not usual or (size != behind - start).any():
        return None
    if checksums and not intact(data, start, behind, _PACKET_HEAD):
        return None
    return EventBatch(
        buffer=buffer,
        kind=kind,
        timestamp=_number(buffer, start),
        server=_number(buffer, start + 5),
        size=size,
        end=_number(buffer, start + 13),
        at=start + HEADER.size,
        to=to,
    )


def _kinds(buffer: Buffer, start: Places) -> Places:
    kind = buffer.bytes[start + 4].astype(np.int64)
    flags = buffer.numbers(start + 17, "<u2").astype(np.int64)
    for place in np.flatnonzero(flags & OF_A_SESSION):
        kind[place] = kind_of(int(kind[place]), OF_A_SESSION)
    return kind


def _number(buffer: Buffer, at: Places) -> Places:
    return buffer.numbers(at, "<u4").astype(np.int64)
