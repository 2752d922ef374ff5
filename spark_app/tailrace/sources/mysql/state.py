"""The state that a change log keeps beside a position: the transactions that need not be sent again, and an anchor of
the log.

A position is a place in one server's log, and a server can be replaced at its address, restored from a backup, or lose
the end of its log in a crash: a place alone would then mean other changes. The anchor is a digest of an event that was
read shortly before the position; `admission` asks the server for that very event before anything is continued.
"""

from dataclasses import dataclass
from hashlib import blake2b

from typing_extensions import override

from tailrace.changelog.records.terms import Position
from tailrace.errors import CorruptLog
from tailrace.sources.mysql.log.events import Kind
from tailrace.sources.mysql.log.framing import Event

_CREATED = 52
"""The place where a FORMAT_DESCRIPTION event says if the server began with it, behind the server's version."""


@dataclass(frozen=True)
class Anchor:
    """An event of the log."""

    at: Position
    """The place where it begins."""
    digest: str

    @staticmethod
    def of(at: Position, event: Event) -> "Anchor":
        *header, body = event
        if header[0] == Kind.FORMAT_DESCRIPTION:
            body = body[:_CREATED]  # what follows is sent otherwise to a reader that has had some of the log
        return Anchor(at, blake2b(repr([*map(int, header)]).encode() + bytes(body), digest_size=8).hexdigest())


@dataclass(frozen=True)
class SourceState:
    done: str
    """MySQL: a GTID set. MariaDB: the last transaction of each domain."""
    anchor: Anchor | None = None
    """None: nothing is known about the log itself."""
    exact: bool = True
    """False: more than `done` was read (MariaDB: a prepared XA transaction must come again, and what follows it)."""

    @staticmethod
    def read(text: str | None) -> "SourceState":
        """`<done>;<place>=<digest>`, without an anchor `<done>` alone; `CorruptLog` if it is neither. With a `~` behind
        `<done>` it is not exact."""
        whole, semicolon, rest = (text or "").partition(";")
        done, exact = whole.removesuffix("~"), not whole.endswith("~")
        at, _, digest = rest.partition("=")
        if not semicolon:
            return SourceState(done, None, exact)
        if not at.isdigit() or not digest:
            raise CorruptLog(f"the change log has the source's state {text!r}")
        return SourceState(done, Anchor(Position(int(at)), digest), exact)

    @override
    def __str__(self) -> str:
        done = self.done if self.exact else f"{self.done}~"
        return done if self.anchor is None else f"{done};{self.anchor.at}={self.anchor.digest}"
