"""The cutover that the manifest asks for (`spec.cutover`), carried out by the running driver.

    spec.cutover ──> checks ─> verification ─> quiet source ─> counters ─> the copies are handed over ──> CutOver
                     `driver.asking.cutover`, the same as the command's                        the driver ends

A loop of the driver. Each attempt first looks for the report in the target, so a manifest that is applied again, and a
driver that is started again, change nothing. Whoever takes the field out of the manifest ends an attempt that has not
reached its last step. Dying anywhere is safe, as with the command: the next driver begins again.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.contract.driver import SnapshotBody
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import Replicator, SnapshotRequestSpec
from tailrace.contract.status import CutoverStatus, Fault, Status
from tailrace.contract.units import seconds
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.cutover import Cutover, CutoverOptions, CutoverRefused
from tailrace.driver.asking.equality import CopyDiffers, require_equal
from tailrace.errors import CutOver, Fenced, TailraceError
from tailrace.errors.backoff import Backoff
from tailrace.places import Places

log = logging.getLogger(__name__)

ATTEMPT_SECONDS = 3600.0
"""The longest wait for a quiet source before everything is checked again: verifications grow old, and tables fail."""
SHORTEST_WAIT = 1.0
"""Seconds between two looks: nobody sits in front of it, and the source may stay writable for days."""
LONGEST_PAUSE = 60.0
DIFFERING_PAUSE = 600.0
"""Seconds after an attempt that found rows to differ: each compares these tables again."""
MOST_TABLES = 1000
"""Tables of one request."""
PREFIX = "cutover-"
_OWN = re.compile(f"{PREFIX}[0-9a-f]{{8}}")
"""Ids of comparisons that a cutover asked for; a user's request may begin with the same word."""
REPAIR = "Run `tailrace verify --repair`, in Kubernetes create a SnapshotRequest with mode Repair."


class _Withdrawn(Exception):
    """The driver ends, or its spec has changed."""


class DeclaredCutover:
    def __init__(
        self,
        control: DriverControl,
        places: Places,
        *,
        replicator: Callable[[], Replicator],
        wait: Callable[[float], bool],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`replicator`: as it is now. `wait`: for so many seconds; True: the driver ends."""
        self._control, self._places, self._replicator, self._wait = control, places, replicator, wait
        self._clock, self._monotonic = clock, monotonic
        self._given = replicator()
        """The Replicator of the attempt."""
        self._message = ""
        self._fault: Fault | None = None
        self._backoff = Backoff(LONGEST_PAUSE)
        self._rest = 0.0
        """The time before which no attempt follows on one that found rows to differ."""

    def status(self) -> CutoverStatus | None:
        """None: the manifest asks for none."""
        if self._replicator().spec.cutover is None:
            return None
        return CutoverStatus(message=self._message, fault=self._fault)

    def step(self) -> None:
        """One attempt, which may last for an hour. `CutOver`: it is done, by this attempt or by one before."""
        given = self._replicator()
        if given is not self._given:
            self._backoff.reset()
            self._given, self._rest, self._message, self._fault = given, 0.0, "", None
        now = self._monotonic()
        if given.spec.cutover is None or self._backoff.is_waiting(now) or now < self._rest:
            return
        try:
            self._attempt(given)
        except _Withdrawn:
            log.info("the cutover is not continued: the driver ends, or its spec has changed")
        except (CutOver, Fenced):
            raise
        except TailraceError as error:
            self._refused(error)
        else:
            self._fault = None
            raise CutOver(f"the cutover is done: programs may write to {self._places.target.place}")

    def _attempt(self, given: Replicator) -> None:
        asked = given.spec.cutover
        assert asked is not None
        options = CutoverOptions(
            timeout=ATTEMPT_SECONDS,
            accept_missing=asked.accept_missing,
            verified_within=seconds(asked.verified_within),
            declared=True,
        )
        running = _Here(self._control, self._sleep)
        Cutover(given, self._places, running, options, self._say, clock=self._clock, sleep=self._sleep).run()

    def _refused(self, error: TailraceError) -> None:
        fault = fault_of(error, self._clock())
        if self._fault is None or (self._fault.name, self._fault.message) != (fault.name, fault.message):
            log.warning("cutover: %s", error)
        self._fault, now = fault, self._monotonic()
        self._backoff.failed(now)
        if isinstance(error, CopyDiffers):
            self._rest = now + DIFFERING_PAUSE

    def _say(self, line: str) -> None:
        if line != self._message:
            log.info("cutover: %s", line)
        self._message = line
        if line.startswith("everything is ready"):
            self._fault = None

    def _sleep(self, wanted: float) -> None:
        if self._wait(max(wanted, SHORTEST_WAIT)) or self._replicator() is not self._given:
            raise _Withdrawn


@dataclass(frozen=True)
class _Here:
    """See `RunningDriver`: the one of this process."""

    control: DriverControl
    sleep: Callable[[float], None]

    def status(self) -> Status:
        return self.control.status()

    def verify(self, tables: Sequence[str]) -> None:
        """Waits for a comparison of a cutover that is under way instead: a driver that was started again continues
        it."""
        running = [s.id for s in self.status().snapshots if s.verify and _OWN.fullmatch(s.id)]
        open_ones = [found.id for found in map(self.control.report, running) if not found.over]
        for snapshot_id in open_ones or [*self._asked(tables)]:
            while not (found := self.control.report(snapshot_id)).over:
                if found.state == "Paused":
                    raise CutoverRefused(
                        f"the comparison {snapshot_id} of this cutover is paused",
                        f"Run `tailrace resume -f <manifest> {snapshot_id}`, or `tailrace stop -f <manifest>"
                        f" {snapshot_id}`: the cutover then starts another comparison.",
                    )
                self.sleep(SHORTEST_WAIT)
            require_equal(found, REPAIR)

    def _asked(self, tables: Sequence[str]) -> list[str]:
        parts = [tuple(tables[at : at + MOST_TABLES]) for at in range(0, len(tables), MOST_TABLES)]
        return [self._ask(part) for part in parts]

    def _ask(self, tables: tuple[str, ...]) -> str:
        name = f"{PREFIX}{secrets.token_hex(4)}"
        spec = SnapshotRequestSpec(replicator=self.control.name, tables=tables, mode="Verify")
        return self.control.request(name, SnapshotBody(name=name, spec=spec)).id
