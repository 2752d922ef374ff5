"""Sets of transactions by global id: MySQL's GTID sets, as text, on the wire and as a question; MariaDB's positions.

A transaction of MySQL is `uuid:number` or `uuid:tag:number`; here its prefix is `uuid:` or `uuid:tag:`. A set has
holes, so what it contains is asked interval by interval, never by the greatest number.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

Interval = tuple[int, int]
"""First and last number, both inside."""
_TAGGED = 1
"""Version of the wire form that has tags (MySQL 8.3 and newer)."""


class GtidSet:
    """Which transactions, by prefix, in merged intervals. Grows in place."""

    def __init__(self, text: str = "") -> None:
        """`text` as the server writes it: `uuid:1-5:7,uuid:tag:1-3`; a tag holds until the next one. `ValueError`."""
        self._intervals: dict[str, list[Interval]] = {}
        for part in text.replace("\n", "").replace(" ", "").lower().split(","):
            if not part:
                continue
            uuid, *rest = part.split(":")
            prefix = f"{uuid}:"
            for item in rest:
                if item[:1].isdigit():
                    first, _, last = item.partition("-")
                    self._insert(prefix, int(first), int(last or first))
                else:
                    prefix = f"{uuid}:{item}:"

    def add(self, prefix: str, number: int) -> None:
        intervals = self._intervals.setdefault(prefix, [])
        if intervals and intervals[-1][1] == number - 1:  # the usual case
            intervals[-1] = (intervals[-1][0], number)
        else:
            self._insert(prefix, number, number)

    def add_range(self, prefix: str, first: int, last: int) -> None:
        """All of these numbers."""
        self.add(prefix, first)
        intervals = self._intervals[prefix]
        if intervals[-1][1] == first:
            intervals[-1] = (intervals[-1][0], last)
        else:
            self._insert(prefix, first, last)

    def _insert(self, prefix: str, first: int, last: int) -> None:
        merged: list[Interval] = []
        for interval in sorted([*self._intervals.get(prefix, []), (first, last)]):
            if merged and interval[0] <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], interval[1]))
            else:
                merged.append(interval)
        self._intervals[prefix] = merged

    def contains(self, prefix: str, number: int) -> bool:
        intervals = self._intervals.get(prefix, [])
        at = bisect_right(intervals, (number, 1 << 64)) - 1
        return at >= 0 and number <= intervals[at][1]

    def contain(self, prefix: str, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Checks many numbers at once."""
        intervals = self._intervals.get(prefix)
        if not intervals:
            return np.zeros(len(numbers), np.bool_)
        first, last = np.array(intervals, dtype=np.int64).T
        at = np.searchsorted(first, numbers, side="right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (numbers <= last[at])
        return found

    def __ge__(self, other: "GtidSet") -> bool:
        """True if it contains all of the other."""
        return all(self._covers(prefix, interval) for prefix, interval in other._each())

    def __sub__(self, other: "GtidSet") -> "GtidSet":
        """The transactions that the other lacks."""
        left = GtidSet()
        for prefix, (first, last) in self._each():
            begins = first
            for gone_first, gone_last in [*other._intervals.get(prefix, []), (last + 1, last + 1)]:
                if begins < gone_first and begins <= last:
                    left._insert(prefix, begins, min(last, gone_first - 1))
                begins = max(begins, gone_last + 1)
        return left

    def __or__(self, other: "GtidSet") -> "GtidSet":
        """The transactions in either."""
        both = GtidSet(str(self))
        for prefix, (first, last) in other._each():
            both._insert(prefix, first, last)
        return both

    def by_server(self) -> dict[str, "GtidSet"]:
        """The subsets by the uuid of the server that wrote them."""
        found: dict[str, GtidSet] = {}
        for prefix, (first, last) in self._each():
            found.setdefault(prefix.partition(":")[0], GtidSet())._insert(prefix, first, last)
        return found

    def _covers(self, prefix: str, interval: Interval) -> bool:
        return any(first <= interval[0] and interval[1] <= last for first, last in self._intervals.get(prefix, []))

    def __bool__(self) -> bool:
        """True if it contains a transaction."""
        return any(self._intervals.values())

    def _each(self) -> Iterator[tuple[str, Interval]]:
        return ((prefix, interval) for prefix, intervals in self._intervals.items() for interval in intervals)

    @override
    def __str__(self) -> str:
        """The set as the server writes it, without tags that hold on: each prefix is a part."""
        parts = []
        for prefix in sorted(self._intervals):
            numbers = (str(a) if a == b else f"{a}-{b}" for a, b in self._intervals[prefix])
            parts.append(prefix + ":".join(numbers))
        return ",".join(parts)

    def encoded(self) -> bytes:
        """The set in the form of COM_BINLOG_DUMP_GTID. The form with tags only where there is one: older servers know
        the other."""
        tagged = any(prefix.count(":") > 1 for prefix in self._intervals)
        count = len(self._intervals)
        head = _TAGGED | count << 8 | _TAGGED << 56 if tagged else count
        return struct.pack("<Q", head) + b"".join(self._encoded(p, tagged) for p in sorted(self._intervals))

    def _encoded(self, prefix: str, tagged: bool) -> bytes:
        uuid, tag, *_ = prefix.split(":")
        intervals = self._intervals[prefix]
        name = bytes([len(tag) << 1]) + tag.encode() if tagged else b""
        numbers = b"".join(struct.pack("<QQ", first, last + 1) for first, last in intervals)
        return bytes.fromhex(uuid.replace("-", "")) + name + struct.pack("<Q", len(intervals)) + numbers


class MariaPosition:
    """MariaDB's `domain-server-number,…`: of each domain the last number of each server that wrote to it, the server
    that wrote last at the end. So the server itself writes its `gtid_binlog_state`."""

    def __init__(self, text: str = "") -> None:
        """`ValueError` if it is none."""
        self._servers: dict[int, dict[int, int]] = {}
        self._last: dict[int, int] = {}
        """Domain -> the server that wrote last."""
        for part in filter(None, text.split(",")):
            domain, server, number = map(int, part.split("-"))
            self.add(domain, server, number)

    def add(self, domain: int, server: int, number: int) -> None:
        """The next transaction of the log."""
        if self._last.get(domain) != server:
            self._servers.setdefault(domain, {}).pop(server, None)
            self._last[domain] = server
        self._servers[domain][server] = number

    def learn(self, earlier: "MariaPosition") -> None:
        """The log says what stands in it before a place up to which all of it was read: other servers may have written
        to our domains before our reading began."""
        for domain, servers in self._servers.items():
            before = earlier._servers.get(domain, {})
            self._servers[domain] = {s: n for s, n in before.items() if s not in servers} | servers

    def numbers(self) -> dict[tuple[int, int], int]:
        """The last number by domain and server."""
        return {(domain, s): number for domain, servers in self._servers.items() for s, number in servers.items()}

    @property
    def place(self) -> str:
        """The last transaction of each domain, as a replica asks for what follows it."""
        found = ((domain, server, self._servers[domain][server]) for domain, server in sorted(self._last.items()))
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in found)

    def within(self, logged: str) -> bool:
        """True if a server has this place in its log, and nothing less of any server that it knows. `logged`: its
        `gtid_binlog_state`."""
        state = MariaPosition(logged).numbers()
        last = {(domain, server) for domain, server in self._last.items()}
        return all(state.get(key, 0 if key in last else number) >= number for key, number in self.numbers().items())

    @override
    def __str__(self) -> str:
        found = ((domain, *each) for domain in sorted(self._servers) for each in self._servers[domain].items())
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in found)
