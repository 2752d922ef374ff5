"""The oldest transaction that is still open on the server: chunks may wait for it, and the log is kept for it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.sources.api import Distance

HELD_BYTES = 64 << 20
"""So much log that has been read already is kept for a reason; a quiet server keeps some segments as well."""
HELD_SECONDS = 60.0
"""A transaction that is younger is no reason."""
ASK_SECONDS = 15.0

# It is the snapshot's xmin. pg_locks shows every transaction's own lock to everybody, pg_stat_activity hides other
# users' ids from those without pg_read_all_stats.
_OLDEST = """
SELECT x.xmin::text::int8, p.gid, l.pid, coalesce(a.usename, '?') || coalesce(' (' || nullif(a.application_name, '')
       || ')', ''),
       extract(epoch FROM coalesce(p.prepared, a.xact_start))::float8, extract(epoch FROM clock_timestamp())::float8,
       coalesce(a.state, 'state hidden')
  FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin) x
  LEFT JOIN pg_prepared_xacts p ON p.transaction::text::int8 = mod(x.xmin::text::int8, 4294967296)
  LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
        AND l.transactionid::text::int8 = mod(x.xmin::text::int8, 4294967296)
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 LIMIT 1
"""


@dataclass(frozen=True)
class OldestTransaction:
    xid: int
    """If none is open, that of the next one."""
    prepared: str | None
    """Its identifier, if it is a prepared one."""
    pid: int | None
    who: str
    """User, and the application's name."""
    begun: float | None
    """Epoch seconds; None: the server does not show it to this user."""
    asked: float
    state: str

    @property
    def age(self) -> float:
        """Seconds; 0: not known."""
        return self.asked - self.begun if self.begun is not None else 0.0

    def named(self, age: bool = True) -> str:
        """A text for people. `age`: it is asked once; else the start time, so that the text stays equal."""
        when = f"{self.age:.0f} s old" if age else f"open since {_time(self.begun)}"
        if self.prepared is not None:
            end = "COMMIT PREPARED or ROLLBACK PREPARED it"
            return f"prepared transaction {self.prepared!r} (xid {self.xid}, {when}): {end}"
        if self.pid is None:
            return f"transaction {self.xid}, which is ending"
        return f"transaction {self.xid} of {self.who} (pid {self.pid}, {when}, {self.state})"


def oldest(connection: Connection) -> OldestTransaction:
    with source_errors("looking for the oldest open transaction"):
        row = connection.execute(_OLDEST).fetchone()
    assert row is not None
    return OldestTransaction(*row)


class LogHolder:
    """The transaction for which the server keeps log that has been read: a slot's log begins where the oldest
    transaction began that was open at its position."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked: float | None = None
        self._found: str | None = None
        self._first: tuple[int, float] = (0, 0.0)
        """The transaction that was found last, and when it was found first: of other users' the server may hide since
        when they are open."""

    def of(self, distance: Distance) -> str | None:
        """None: none is known, or it is not worth reporting. Asks every `ASK_SECONDS`, only while much is kept."""
        if distance.retained_bytes is None or distance.retained_bytes - (distance.behind_bytes or 0) < HELD_BYTES:
            self._found = self._asked = None
            return None
        if self._asked is None or time.monotonic() - self._asked >= ASK_SECONDS:
            found, now = oldest(self._connection), time.monotonic()
            if self._first[0] != found.xid:
                self._first = found.xid, now
            is_open = found.prepared is not None or found.pid is not None
            held = is_open and max(found.age, now - self._first[1]) >= HELD_SECONDS
            self._found, self._asked = found.named(age=False) if held else None, now
        return self._found


def _time(at: float | None) -> str:
    return "an unknown time" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"
