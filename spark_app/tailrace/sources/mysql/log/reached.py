"""How far the log is read: the file, the end of the last event, the position, and the witness of it.

Used by the assembler, which tells every event that has an end in its file.
"""

from dataclasses import dataclass

from tailrace.changelog.records import Position
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.log.walk import Places
from tailrace.sources.mysql.position import Numbering
from tailrace.sources.mysql.state import Witness

_WRAP = 1 << 32
"""Ends in event headers have 32 bits; files can be larger."""
_MOST_WITNESSED = 1 << 16
"""Bytes."""


@dataclass(frozen=True)
class StartingPoint:
    position: Position
    """What ends at or before it is recorded already."""
    numbering: Numbering
    unended: Position | None = None
    """Beginning of the file in which the reading goes on, unless it has come to its end; None: it has."""


class Reached:
    def __init__(self, start: StartingPoint) -> None:
        self._numbering = start.numbering
        self._file = -1
        """Position of the beginning of the file; negative: none was named yet."""
        self._recorded = start.position
        self._unended = start.unended
        """Beginning of a file without an end so far (STOP, ROTATE): a server that crashed begins another one."""
        self._end = 0
        """Of the last event, in its file."""
        self._last: tuple[Position, Event] | None = None
        """The last event that ended a transaction, or began a file, and where it begins."""
        self.position = start.position

    @property
    def witness(self) -> Witness | None:
        """An event at or before the position; None: none was read yet."""
        return None if self._last is None else Witness.of(*self._last)

    def close_file(self) -> None:
        """It has come to its end."""
        self._unended = None

    def open_file(self, name: str, end: int) -> bool:
        """Another one begins, or is told to. True: the one before has no end, for the server crashed."""
        self._file, self._end = self._numbering.of(name, 0), end
        # What is sent again may begin before it, and lead over crashes that are recorded already.
        crashed = self._unended is not None and self._file > max(self._unended, self._recorded)
        self._unended = Position(self._file)
        return crashed

    def advance(self, end: int) -> None:
        """The end has 32 bits only: what would go far back has gone round."""
        now = self._round + end
        if self._end - now > _WRAP // 2:
            now += _WRAP
        self._end = max(self._end, now)

    @property
    def _round(self) -> int:
        return self._end // _WRAP * _WRAP

    def place(self, size: int) -> int:
        """Where the last event, of so many bytes, begins."""
        return self._file + self._end - size

    @property
    def file(self) -> int:
        """Position of its beginning."""
        return self._file

    @property
    def origin(self) -> int:
        """What the ends in event headers are to be added to."""
        return self._file + self._round

    def goes_on(self, ends: Places) -> bool:
        """Whether these are ends of events that follow in the file, without going round. Newer versions of MariaDB
        say 0 of all but a transaction's first event."""
        told = ends[ends > 0]
        if self._file < 0 or not len(told):
            return False
        return bool(told[0] >= self._end % _WRAP and (told[1:] >= told[:-1]).all())

    def take(self, ends: Places) -> None:
        """To the last end of events that go on."""
        self._end = self._round + int(ends.max())

    def remember(self, event: Event) -> None:
        """It was the last. A large one would be kept in memory for it; a place beyond 4 GiB could not be asked for."""
        size, end = event[3:5]
        if end and size <= _MOST_WITNESSED and self._end - size < _WRAP:
            self._last = Position(self.place(size)), event

    def arrive(self) -> None:
        """Between transactions: all that the server has sent is taken."""
        if self._file >= 0:
            self.position = max(self.position, Position(self._file + self._end))
