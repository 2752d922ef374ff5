"""Reports how old changes were when they became visible, and how far `spec.objective` is met. Pure."""

from tailrace.apply.freshness import ChangeAges, Freshness
from tailrace.contract.settings import ObjectiveSpec
from tailrace.contract.status import AgeCount, FreshnessStatus, ObjectiveStatus, Status
from tailrace.contract.units import seconds

WINDOW = 86_400.0
"""Seconds that are looked back where no objective says otherwise."""

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""ChangeAges, in seconds, up to which changes are counted for the metric."""


def told(status: Status, measured: Freshness, asked: ObjectiveSpec | None, now: float) -> Status:
    window = WINDOW if asked is None else seconds(asked.window)
    ages = measured.ages(window, now)
    all_ages = measured.since_start()
    freshness = FreshnessStatus(
        window_seconds=window,
        changes=ages.changes,
        p50=_rounded(ages.percentile(50)),
        p95=_rounded(ages.percentile(95)),
        p99=_rounded(ages.percentile(99)),
        since_start=all_ages.changes,
        by_age=tuple(AgeCount(seconds=at, changes=all_ages.within(at)) for at in BOUNDS),
        paused=ages.paused,
    )
    objective = None if asked is None else _objective(asked, ages, all_ages)
    return status.model_copy(update={"freshness": freshness, "objective": objective})


def _objective(asked: ObjectiveSpec, ages: ChangeAges, since_start: ChangeAges) -> ObjectiveStatus:
    within = seconds(asked.within)
    met = remaining = None
    if ages.changes:
        met = 100 * ages.within(within) / ages.changes
        remaining = 1 - (100 - met) / (100 - asked.percent)
    return ObjectiveStatus(
        within_seconds=within,
        percent=asked.percent,
        met_percent=None if met is None else round(met, 4),
        remaining=None if remaining is None else round(remaining, 4),
        late=since_start.changes - since_start.within(within),
    )


def _rounded(age: float | None) -> float | None:
    return None if age is None else round(age, 3)
