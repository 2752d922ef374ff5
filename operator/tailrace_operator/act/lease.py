"""One active operator: a coordination Lease, taken before anything is watched or written, renewed while it runs.

Another process's lease is taken over when it has not been renewed for its whole duration by this process's own clock:
clocks of nodes are never compared. A holder that cannot renew in time ends itself before anybody can take over.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from tailrace.errors import Retry, TailraceError
from tailrace_operator import metrics
from tailrace_operator.kube import ApiConflict, ApiNotFound, ApiRefused, Document, Kube, Where
from tailrace_operator.status import times

log = logging.getLogger(__name__)

DURATION = 30
"""Seconds without renewal after which others may take it."""
RENEW_EVERY = 5.0
ANSWER_SECONDS = 8.0
"""Seconds for one attempt: less than GIVE_UP_AFTER, so that a lost answer is followed by another attempt."""
GIVE_UP_AFTER = 26.0
"""Seconds since the begin of the last successful renewal after which the holder ends: less than DURATION, which others
count from the moment at which that renewal was stored."""


class LeaseLost(TailraceError):
    """The lease could not be renewed in time, or another process has it."""


class Lease:
    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._where = Where("Lease", namespace, name)
        self._identity = identity
        self._clock = clock
        self._monotonic = monotonic
        self._observed: tuple[str, float] = ("", 0.0)
        self._renewed = monotonic()
        self._ours = False
        self.last_step_at = monotonic()

    async def acquire(self) -> None:
        """Wait until it is ours."""
        waiting = False
        while True:
            self._renewed = self.last_step_at = self._monotonic()
            try:
                if await self._try(self._kube):
                    self._ours = True
                    metrics.LEADER.set(1)
                    log.info("holding lease %s as %s", self._where.name, self._identity)
                    return
                if not waiting:
                    log.info("waiting: another operator holds lease %s", self._where.name)
                    waiting = True
            except (Retry, ApiRefused) as error:
                log.warning("lease: %s", error.message)  # a right may be missing for a while
            await asyncio.sleep(RENEW_EVERY / 2)

    @property
    def held(self) -> bool:
        """False: nothing may be written, since others may hold it, however late this process notices its end."""
        return self._ours and self._monotonic() - self._renewed < GIVE_UP_AFTER

    async def keep(self, kube: Kube | None = None) -> None:
        """Renew forever; raises `LeaseLost`. `kube`: the connection of the loop in which this runs."""
        kube = kube or self._kube
        while True:
            await asyncio.sleep(RENEW_EVERY)
            begun = self.last_step_at = self._monotonic()
            end = self._renewed + GIVE_UP_AFTER
            try:
                async with asyncio.timeout(max(min(ANSWER_SECONDS, end - begun), 0.0)):
                    if not await self._try(kube):
                        self._ours = False
                        raise LeaseLost("another operator has taken the lease")
                self._renewed = begun
            except (Retry, ApiRefused, TimeoutError) as error:
                log.warning("the lease could not be renewed: %r", error)
                if self._monotonic() >= end:
                    raise LeaseLost(f"the lease could not be renewed for {GIVE_UP_AFTER:.0f} s") from error

    async def release(self) -> None:
        """Let the next one begin at once."""
        try:
            document = await self._kube.call("GET", self._where)
            if document["spec"].get("holderIdentity") == self._identity:
                document["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.call("PUT", self._where, body=document)
        except TailraceError as error:
            log.info("the lease could not be released and will expire: %s", error.message)
        metrics.LEADER.set(0)

    async def _try(self, kube: Kube) -> bool:
        try:
            document = await kube.call("GET", self._where)
        except ApiNotFound:
            return await self._create(kube)
        spec = document.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(document):
            return False
        if holder != self._identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
            spec["acquireTime"] = times.micro_text(self._clock())
        spec |= self._hold()
        try:
            await kube.call("PUT", self._where, body=document)
        except ApiConflict:  # somebody else was quicker, or a PUT of our own that was given up has arrived
            found = await kube.call("GET", self._where)
            return bool(found.get("spec", {}).get("holderIdentity") == self._identity)
        return True

    async def _create(self, kube: Kube) -> bool:
        assert self._where.name is not None
        body: Document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._where.name, "namespace": self._where.namespace},
            "spec": {**self._hold(), "acquireTime": times.micro_text(self._clock()), "leaseTransitions": 0},
        }
        try:
            await kube.call("POST", Where("Lease", self._where.namespace), body=body)
        except ApiConflict:
            return False
        return True

    def _hold(self) -> Document:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION,
            "renewTime": times.micro_text(self._clock()),
        }

    def _expired(self, document: Document) -> bool:
        version, now = document["metadata"]["resourceVersion"], self._monotonic()
        if version != self._observed[0]:
            self._observed = (version, now)
        duration = float(document["spec"].get("leaseDurationSeconds") or DURATION)
        return now - self._observed[1] > duration
