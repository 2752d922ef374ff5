"""Batches stretch before the load jobs of a day are used up, and the status can tell it."""

from tailrace.targets.bigquery.pace import AT_ONCE, PER_SECOND, WHY, LoadPace
from tailrace.targets.pauses import TargetPauses


def test_jobs_wait_once_those_of_the_day_would_be_used_up() -> None:
    now, slept, told, pauses = [0.0], list[float](), list[str | None](), TargetPauses()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        told.append(pauses.why)
        now[0] += seconds

    pace = LoadPace(lambda: now[0], sleep, pauses)
    for _ in range(AT_ONCE):
        pace.take()
    assert slept == []
    day = 86_400.0
    while now[0] < day:
        pace.take()
    assert set(told) == {WHY} and pauses.why is None
    assert abs(len(slept) - day * PER_SECOND) <= 2 and AT_ONCE + len(slept) < 100_000
