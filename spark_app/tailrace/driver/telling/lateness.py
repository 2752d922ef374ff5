"""Reports that `apply.freshness` is not kept, and what takes the time. A single late batch is not reported."""

from tailrace.contract.status import Status

LASTING_SECONDS = 60.0
"""The time for which changes must have been late again and again; after as long in time, they are no longer."""


class Lateness:
    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def told(self, status: Status, freshness: float | None, now: float, pause: str | None = None) -> Status:
        """The status, with what has been late for long. `freshness`: the seconds that are promised, if any; `now`: of a
        monotonic clock; `pause`: why batches wait now."""
        why = missed(status, freshness, pause) if freshness is not None and not status.apply.suspended else None
        if not self._lasts(now, why is not None):
            return status
        apply = status.apply.model_copy(update={"freshness_missed": why})
        message = status.message or (why if status.state == "Running" else None) or ""
        return status.model_copy(update={"apply": apply, "message": message})

    def _lasts(self, now: float, late: bool) -> bool:
        if self._since is not None and now - self._last > LASTING_SECONDS:
            self._since = None
        if late:
            self._since, self._last = now if self._since is None else self._since, now
        return late and self._since is not None and now - self._since >= LASTING_SECONDS


def missed(status: Status, freshness: float, pause: str | None = None) -> str | None:
    """Names the tables that are late now, and what takes the time; None: everything is in time."""
    counted = (t for t in status.tables if t.state == "REPLICATING" or t.converging_since is not None)
    lags = [t.lag_seconds for t in counted if t.lag_seconds is not None]
    late = [lag for lag in lags if lag > freshness]
    captured = status.capture.lag_seconds or 0.0
    if captured > freshness:
        what = f"all tables are late, by {captured + max(lags, default=0.0):.0f} s"
        why = "the source's log is read late"
    elif late:
        what = f"{len(late)} of {status.tables_total} tables are late, by up to {max(late):.0f} s"
        reading = any(snapshot.state == "Running" for snapshot in status.snapshots)
        why = pause or ("a snapshot is under way" if reading else "the commits take longer than that")
    else:
        return None
    return f"{what}, and apply.freshness promises {freshness:g} s: {why}"
