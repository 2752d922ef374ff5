"""Has the source translate the keys of SnapshotRequests, on a thread beside the driver's loops: a source may hang.

`asking.control` asks. The source is asked on one thread and one connection, in the order in which the requests came;
the thread ends when nothing is open. One look-up holds up those behind it for as long as the source takes: it reads the
catalog and computes with the keys, waits for a lock for a few seconds at most, and a dead connection ends in half a
minute. Only a source that hangs takes longer, and then for all requests.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.changelog.records.terms import Key
from tailrace.changelog.state import TableLog
from tailrace.driver.asking.server import Conflict
from tailrace.errors import Retry
from tailrace.snapshot.planner import CanonicalKeys

MOST = 64
"""Look-ups kept at once; a request has up to a few MB of keys."""


class Withdrawn(Conflict):
    """The request was stopped before its snapshot was planned."""


class BeingLookedUp(Retry):
    """The source has not answered yet."""


@dataclass(eq=False)
class _Lookup:
    table: TableLog
    asked: tuple[Key, ...]
    done: threading.Event = field(default_factory=threading.Event)
    """Answered, failed or withdrawn."""
    answer: tuple[Key, ...] = ()
    error: BaseException | None = None

    def is_of(self, table: TableLog, asked: tuple[Key, ...]) -> bool:
        return (self.table.table_id, self.asked) == (table.table_id, asked)


class KeyLookups:
    """The look-ups of requests that are not planned yet, by the id of the snapshot. Called from any thread."""

    def __init__(self, ask: CanonicalKeys) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._open: dict[str, _Lookup] = {}
        """Look-ups in the order of their requests. An answer stays until the snapshot is planned."""
        self._forgotten = deque[str](maxlen=MOST)
        """Requests whose answers were removed to make room for others."""
        self._thread: threading.Thread | None = None

    @property
    def waiting_for(self) -> str | None:
        """The snapshot whose keys the source is asked for; None: it is not asked."""
        with self._lock:
            return next((snapshot_id for snapshot_id, lookup in self._open.items() if not lookup.done.is_set()), None)

    def keys(self, snapshot_id: str, table: TableLog, asked: Sequence[Key], patience: float) -> tuple[Key, ...]:
        """`planner.CanonicalKeys`, waited for `patience` seconds: `BeingLookedUp` when the answer takes longer; the
        next question gets it then. What the source refuses is raised to those who wait, and asked again after that."""
        lookup = self._begun(snapshot_id, table, tuple(asked))
        if not lookup.done.wait(patience):
            name = table.schema.name
            raise BeingLookedUp(f"the source has not yet answered which keys of {name} are meant", "Ask again later.")
        if lookup.error is not None:
            self._drop(snapshot_id, lookup)
            raise lookup.error
        return lookup.answer

    def require(self, snapshot_id: str) -> None:
        """`Withdrawn`: the keys are of a request that was stopped meanwhile. `Retry`: they had to make room."""
        with self._lock:
            if snapshot_id in self._forgotten:
                self._forgotten.remove(snapshot_id)
                raise Retry("the keys of this request made room for those of others", "Ask again later.")
            if snapshot_id not in self._open:
                raise _withdrawn(snapshot_id)

    def planned(self, snapshot_id: str) -> None:
        with self._lock:
            self._open.pop(snapshot_id, None)

    def withdraw(self, snapshot_id: str) -> bool:
        """The waiting client is informed. False: no such request is open."""
        with self._lock:
            lookup = self._open.pop(snapshot_id, None)
            if lookup is not None:
                _withdraw(lookup, snapshot_id)
            return lookup is not None

    def _begun(self, snapshot_id: str, table: TableLog, asked: tuple[Key, ...]) -> _Lookup:
        with self._lock:
            known = self._open.get(snapshot_id)
            if known is not None and known.is_of(table, asked):
                return known
            if known is not None:
                _withdraw(self._open.pop(snapshot_id), snapshot_id)
            self._make_room()
            lookup = self._open[snapshot_id] = _Lookup(table, asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="key-lookup", daemon=True)
                self._thread.start()
            return lookup

    def _make_room(self) -> None:
        """An answer that was not collected is the first to be removed: it can be requested again."""
        if len(self._open) < MOST:
            return
        forgotten = next((snapshot_id for snapshot_id, lookup in self._open.items() if lookup.done.is_set()), None)
        if forgotten is None:
            raise Retry(f"{MOST} snapshot requests wait for the source to look up their keys", "Ask again later.")
        del self._open[forgotten]
        self._forgotten.append(forgotten)

    def _work(self) -> None:
        while (lookup := self._next()) is not None:
            try:
                answer, error = self._ask(lookup.table, lookup.asked), None
            except BaseException as met:  # raised to the thread that waits
                answer, error = (), met
            with self._lock:
                if not lookup.done.is_set():
                    lookup.answer, lookup.error = answer, error
                    lookup.done.set()

    def _next(self) -> _Lookup | None:
        with self._lock:
            lookup = next((lookup for lookup in self._open.values() if not lookup.done.is_set()), None)
            if lookup is None:
                self._thread = None
            return lookup

    def _drop(self, snapshot_id: str, lookup: _Lookup) -> None:
        with self._lock:
            if self._open.get(snapshot_id) is lookup:
                del self._open[snapshot_id]


def _withdraw(lookup: _Lookup, snapshot_id: str) -> None:
    """Its answer, should it come, is discarded."""
    lookup.error = _withdrawn(snapshot_id)
    lookup.done.set()


def _withdrawn(snapshot_id: str) -> Withdrawn:
    return Withdrawn(f"snapshot {snapshot_id} was stopped before it was planned", "Ask again if it is still wanted.")
