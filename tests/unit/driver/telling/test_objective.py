from pathlib import Path

from support.observed import reported
from tailrace.apply.freshness import Freshness, bucket_of
from tailrace.contract.resources import StorageLocation
from tailrace.contract.settings import ObjectiveSpec
from tailrace.driver.telling import metrics, objective
from tailrace.storage.store import Storage

NOW = 1_790_000_000.0


def measured(folder: Path, *ages: tuple[float, int]) -> Freshness:
    found = Freshness(Storage.open(StorageLocation(location=f"file://{folder}/log")), NOW)
    counts = {bucket_of(age): changes for age, changes in ages}
    found._hours[int(NOW // 3600)] = found._since_start
    found._since_start.update(counts)
    return found


def test_the_share_of_late_changes_that_is_left_is_told(tmp_path: Path) -> None:
    ages = measured(tmp_path, (1.0, 995), (20.0, 5))
    asked = ObjectiveSpec(within="10s", percent=99, window="1h")
    told = objective.told(reported(), ages, asked, NOW)
    assert told.objective is not None and told.freshness is not None
    assert (told.objective.met_percent, told.objective.remaining, told.objective.late) == (99.5, 0.5, 5)
    assert (told.freshness.changes, told.freshness.since_start) == (1000, 1000)
    missed = objective.told(reported(), ages, ObjectiveSpec(within="10s", percent=99.9), NOW).objective
    assert missed is not None and missed.remaining is not None and missed.remaining < 0
    text = metrics.render(told).decode()
    for line in (
        'tailrace_freshness_seconds_bucket{le="0.5"} 0.0', 'tailrace_freshness_seconds_bucket{le="10.0"} 995.0',
        'tailrace_freshness_seconds_bucket{le="+Inf"} 1000.0', 'tailrace_objective_changes_total{result="late"} 5.0',
        'tailrace_objective_changes_total{result="met"} 995.0', "tailrace_objective_ratio 0.99",
    ):  # fmt: skip
        assert line in text.splitlines(), text


def test_without_changes_nothing_is_claimed(tmp_path: Path) -> None:
    told = objective.told(reported(), measured(tmp_path), ObjectiveSpec(), NOW)
    assert told.freshness is not None and told.freshness.p95 is None
    assert told.objective is not None and (told.objective.met_percent, told.objective.remaining) == (None, None)
    assert objective.told(reported(), measured(tmp_path), None, NOW).objective is None
