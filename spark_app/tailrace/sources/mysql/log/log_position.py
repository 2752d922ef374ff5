"""How far the log is read: the file, the end of the last event, the position, and the anchor of it.

Used by the assembler, which tells every event that has an end in its file.
"""

from dataclasses import dataclass

from tailrace.changelog.records.terms import Position
from tailrace.sources.mysql.log.connection import lost
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.log.walk import Places
from tailrace.sources.mysql.position import Numbering, file_of, offset_of
from tailrace.sources.mysql.state import Anchor

_WRAP = 1 << 32
"""Ends in event headers have 32 bits; files can be larger."""
_MOST_ANCHORED = 1 << 16
"""Bytes."""
_BETWEEN = 1 << 20
"""Bytes, more than events of the server's own take up between two transactions."""


@dataclass(frozen=True)
class StartingPoint:
    position: Position
    """The position up to which everything is recorded already."""
    numbering: Numbering
    unended: Position | None = None
    """Beginning of the file in which the reading continues, unless it has come to its end; None: it has."""
    exact: bool = True
    """False: MariaDB sends again what is recorded, from a prepared XA transaction on. It sends nothing of it else."""


class LogPosition:
    def __init__(self, start: StartingPoint) -> None:
        self._numbering = start.numbering
        self._file = -1
        """Position of the beginning of the file; negative: none was named yet."""
        self._recorded = start.position
        self._exact = start.exact
        self._large = offset_of(start.position) >= _WRAP - _BETWEEN
        """True if ends in headers may have wrapped around where the next transaction begins in the recorded file."""
        self._unended = start.unended
        """Beginning of a file without an end so far (STOP, ROTATE): a server that crashed begins another one."""
        self._end = 0
        """The end of the last event that has one in its file."""
        self._untold = 0
        """Bytes of the events since then."""
        self._last: tuple[Position, Event] | None = None
        """The last event that ended a transaction, or began a file, and where it begins."""
        self.position = start.position

    @property
    def anchor(self) -> Anchor | None:
        """An event at or before the position; None: none was read yet."""
        return None if self._last is None else Anchor.of(*self._last)

    def close_file(self) -> None:
        """It has come to its end."""
        self._unended = None

    def open_file(self, name: str, end: int) -> bool:
        """Another one begins, or is told to. True: the one before has no end, for the server crashed."""
        first, self._file = self._file < 0, self._numbering.of(name, 0)
        self._end, self._untold = end, 0
        if first and not self._exact and self._in_large_file:
            raise lost("an XA transaction was prepared in a binary log of more than 4 GiB, and its place is not known")
        # What is sent again may begin before it, and lead over crashes that are recorded already.
        crashed = self._unended is not None and self._file > max(self._unended, self._recorded)
        self._unended = Position(self._file)
        return crashed

    def advance(self, end: int) -> None:
        """The end has 32 bits only: what would go far back has gone round."""
        now = self._round + end
        if self._expected - now > _WRAP // 2:
            now += _WRAP
        self._end, self._untold = max(self._end, now), 0

    def advance_without_end(self, size: int) -> None:
        """Advances by an event of a transaction that does not say where it ends."""
        self._untold += size

    @property
    def _expected(self) -> int:
        """The place where the last event ends, if the server has left out none since one that told it."""
        return self._end + self._untold

    @property
    def _round(self) -> int:
        return self._expected // _WRAP * _WRAP

    def place(self, size: int) -> int:
        """The place where the last event, of so many bytes, begins."""
        return self._file + self._end - size

    def place_of_transaction(self, size: int) -> int:
        """The place of MariaDB's first event of a transaction. After a start the server leaves out what is recorded,
        and with it how often the ends have gone round."""
        while self._exact and self._in_large_file and self.place(size) < self._recorded:
            self._end += _WRAP
        return self.place(size)

    @property
    def _in_large_file(self) -> bool:
        return self._large and file_of(Position(self._file)) == file_of(self._recorded)

    @property
    def file(self) -> int:
        """Position of its beginning."""
        return self._file

    @property
    def origin(self) -> int:
        """The number to which the ends in event headers are added."""
        return self._file + self._round

    def goes_on(self, ends: Places) -> bool:
        """True if these are ends of events that follow in the file, without wrapping around. Newer versions of MariaDB
        say 0 of all but a transaction's first event."""
        known = ends[ends > 0]
        if self._file < 0 or not len(known):
            return False
        return bool(known[0] >= self._expected % _WRAP and (known[1:] >= known[:-1]).all())

    def take(self, ends: Places) -> None:
        """Advances to the last end of events that continue."""
        self._end, self._untold = self._round + int(ends.max()), 0

    def remember(self, event: Event) -> None:
        """It was the last. A large one would be kept in memory for it; a place beyond 4 GiB could not be asked for."""
        size, end = event[3:5]
        if end and size <= _MOST_ANCHORED and self._end - size < _WRAP:
            self._last = Position(self.place(size)), event

    def arrive(self) -> None:
        """Between transactions: all that the server has sent is taken."""
        if self._file >= 0:
            self.position = max(self.position, Position(self._file + self._end))
