"""The driver's last work at its source before the Replicator is deleted. The driver holds the credentials, which may be
gone later.

Requested over HTTP by the operator (`ask`, `POST /drop`) when the Replicator is deleted; or by the driver itself, when
a signal ends it because its whole namespace is being deleted: no Job can run there any longer. The driver calls
`carry_out` after capture and Spark have ended.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tailrace.contract import faults
from tailrace.contract.driver import DropAnswer, DropReport
from tailrace.contract.resources import DeletionPolicy, Replicator
from tailrace.driver.asking.namespace import namespace_ends
from tailrace.driver.process.run_dir import RunFolder
from tailrace.driver.process.shutdown import ShutdownRequest
from tailrace.errors import Fenced, TailraceError
from tailrace.removal import drop
from tailrace.sources.api import RemovalStep

log = logging.getLogger(__name__)
ORDERS: dict[DeletionPolicy, str] = {
    "Retain": "dropping what was created in the source",
    "Delete": "dropping what was created in the source, and the data",
    "Orphan": "releasing the change log, and dropping nothing",
}
PAUSE_SECONDS = 5.0
"""Between two attempts: the source or the storage may be away for a while."""
HURRIED_PAUSE_SECONDS = 1.0
LINGER_STEP_SECONDS = 0.5


class FinalDrop:
    def __init__(
        self,
        replicator: Replicator,
        secrets: Path | None,
        folder: RunFolder,
        ending: ShutdownRequest,
        *,
        ends: Callable[[], bool] = lambda: namespace_ends(os.environ),
        reread: Callable[[], Replicator] | None = None,
    ) -> None:
        """`ends` returns whether the pod's namespace is being deleted; `reread` what the manifest says by now."""
        self._replicator = replicator
        self._secrets = secrets
        self._folder = folder
        self._ending = ending
        self._ends = ends
        self._reread = reread
        self._lock = threading.Lock()
        self._asked: DeletionPolicy | None = None
        """None: no request was made."""
        self._ended: bool | None = None
        self._report: DropReport | None = None
        self._message = "the driver finishes its work first"

    def ask(self, policy: DeletionPolicy) -> DropAnswer:
        """Requests the drop, and returns its progress. The first request counts."""
        with self._lock:
            if self._asked is None:
                log.info("%s, as requested", ORDERS[policy])
                self._asked = policy
                self._ending.set()
        report = self._report
        return DropAnswer(done=report is not None, report=report, message=self._message if report is None else "")

    @property
    def namespace_ends(self) -> bool:
        """Looked at once, after a signal."""
        if self._ended is None and self._ending.signalled:
            self._ended = self._ends()
        return self._ended is True

    def carry_out(self) -> None:
        """Does nothing unless a drop was requested or the namespace is being deleted. If the process dies, the Job does
        the rest; where that is impossible, the operator reports it."""
        if self._asked is None and self.namespace_ends:
            self._asked = self._policy()
            log.warning("the namespace is being deleted: %s", ORDERS[self._asked])
        if self._asked is None:
            return
        steps: list[RemovalStep] = []
        while True:
            try:
                what = self._replicator, self._secrets, self._folder.path, self._asked
                for step in drop.leave(*what, hurried=self.namespace_ends):
                    log.info("%s", step)
                    steps.append(step)
                    faults.leave_report(drop.report_of(self._replicator, steps, complete=False))
                break
            except TailraceError as error:
                self._message = f"{error.name}: {error.message}"
                log.warning("%s; trying again in %.0f s", error, PAUSE_SECONDS)
            if self.namespace_ends:
                time.sleep(HURRIED_PAUSE_SECONDS)  # until it succeeds or the pod's time is over
            elif self._pause(PAUSE_SECONDS):
                return  # asked to end meanwhile: the caller has another way
        report = drop.report_of(self._replicator, steps, complete=True)
        faults.leave_report(report)
        # A container that ends from here on is started again at once, until its pod is gone: it must not take back what
        # was given up. Dying before this line: nobody has been told yet, and the order is given again.
        self._folder.remember_fenced(Fenced(f"Replicator {report.owner!r} was deleted", "Apply it again."))
        self._report = report
        while not self._ending.signalled:  # the caller fetches the answer, and then ends this process
            self._pause(LINGER_STEP_SECONDS)

    def _policy(self) -> DeletionPolicy:
        """The policy in the current manifest: a changed deletionPolicy restarts no driver. Nothing is deleted on a
        guess."""
        if self._reread is None:
            return "Retain"
        try:
            return self._reread().spec.deletion_policy
        except TailraceError as error:
            log.warning("the data is kept: %s", error)
            return "Orphan" if self._replicator.spec.deletion_policy == "Orphan" else "Retain"

    def _pause(self, seconds: float) -> bool:
        """Up to so long; True: a signal came."""
        self._ending.pause(seconds)
        return self._ending.signalled
