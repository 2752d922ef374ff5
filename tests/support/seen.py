"""When changes become visible to somebody who reads the target all the time, and knows nothing of Tailrace.

A `Writer` commits rows with growing ids, a `Reader` looks again and again for the largest that is there. Each moment is
known to lie between two readings of the clock, so what follows from them holds on a machine of any speed.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np
import psycopg
from typing_extensions import override

from tailrace.apply.freshness import ChangeAges

TABLE = "proof.seen"
PERCENTS = (50, 90, 95, 99)
WITHIN = 0.05
"""What is reported may differ by so much from what was seen, of what was seen."""
Moment = tuple[float, float]
"""Something happened between these times."""


class Repeated:
    """Does the same again and again until the block is left; what it raises is raised then."""

    def __init__(self, pause: float) -> None:
        self._pause, self._ending = pause, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def once(self) -> None:
        raise NotImplementedError

    def end(self) -> None: ...

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._pause):
                self.once()
        except BaseException as error:
            self._error = error
        finally:
            self.end()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error


class Writer(Repeated):
    """Rows of the table, each by a transaction of its own. While the source is down it tries again."""

    def __init__(self, connect: Callable[[], psycopg.Connection], pause: float = 0.02) -> None:
        super().__init__(pause)
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self.commits: list[Moment] = []
        """Of id 1, 2, …"""
        self._held = threading.Event()
        self._writing = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is written: what happens now happens at a time that nobody knows exactly."""
        self._held.set()
        with self._writing:
            pass
        yield
        self._held.clear()

    @override
    def once(self) -> None:
        with self._writing:
            if not self._held.is_set():
                self._write()

    def _write(self) -> None:
        number = len(self.commits) + 1
        try:
            self._connection = self._connection or self._connect()
            self._connection.autocommit = True
            before = time.time()
            # Once more where nobody knows whether it was committed.
            self._connection.execute(f"INSERT INTO {TABLE} VALUES ({number}) ON CONFLICT DO NOTHING".encode())
            self.commits.append((before, time.time()))
        except psycopg.OperationalError:
            self.end()

    @override
    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Reader(Repeated):
    """`look`: the largest id that the target shows."""

    def __init__(self, look: Callable[[], int], pause: float = 0.02) -> None:
        super().__init__(pause)
        self._look = look
        self._before = time.time()
        self.newest = 0
        self._seen: list[tuple[int, Moment]] = []

    @override
    def once(self) -> None:
        begun = time.time()
        found = self._look()
        if found > self.newest:
            self._seen.append((found, (self._before, time.time())))
            self.newest = found
        self._before = begun

    def moment(self, number: int) -> Moment:
        """When this id became visible."""
        return self._seen[bisect_left(self._seen, number, key=lambda at: at[0])][1]


@dataclass(frozen=True)
class Pause:
    """Nothing was to be applied; each end lies between two readings of the clock, between which nothing is written."""

    begun: Moment
    ended: Moment

    def holds(self, at: float) -> bool:
        return self.begun[0] <= at <= self.ended[1]

    @property
    def least(self) -> float:
        return self.ended[0] - self.begun[1]

    @property
    def most(self) -> float:
        return self.ended[1] - self.begun[0]


@dataclass
class Seen:
    """The ages of the changes of which nobody was told to wait, at least and at most; and how many waited."""

    least: list[float]
    most: list[float]
    paused: int

    @classmethod
    def of(cls, writer: Writer, reader: Reader, pauses: Sequence[Pause] = ()) -> "Seen":
        """What was committed in a pause is told apart, and what was committed before does not count it."""
        found = cls([], [], 0)
        for number, (begun, committed) in enumerate(writer.commits, 1):
            if any(pause.holds((begun + committed) / 2) for pause in pauses):
                found.paused += 1
                continue
            first, last = reader.moment(number)
            waited = [pause for pause in pauses if committed < pause.begun[1] and last > pause.ended[0]]
            found.least.append(first - committed - sum(pause.most for pause in waited))
            found.most.append(last - begun - sum(pause.least for pause in waited))
        return found

    def percentile(self, percent: float) -> Moment:
        """Between these ages."""
        return float(np.percentile(self.least, percent)), float(np.percentile(self.most, percent))

    def share(self, within: float) -> Moment:
        """The percentage that was in time lies between these."""
        ages = (np.array(self.most), np.array(self.least))
        first, last = (100 * float((each <= within).mean()) for each in ages)
        return first, last

    def differences(self, reported: ChangeAges) -> list[str]:
        """Where the report is not what was seen."""
        counts = ((reported.changes, len(self.least)), (reported.paused, self.paused))
        near = WITHIN * (len(self.least) + self.paused)
        told = [f"{told} changes, seen {seen}" for told, seen in counts if abs(told - seen) > near]
        for percent in PERCENTS:
            at = reported.percentile(percent) or 0.0
            least, most = self.percentile(percent)
            if not least * (1 - WITHIN) <= at <= most * (1 + WITHIN):
                told.append(f"p{percent}: {at:.3f} s, seen {least:.3f} to {most:.3f} s")
        return told


def create(connection: psycopg.Connection) -> None:
    with closing(connection):
        connection.execute(f"CREATE SCHEMA proof; CREATE TABLE {TABLE} (id int PRIMARY KEY)".encode())
