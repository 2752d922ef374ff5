"""Gauges per Replicator and SnapshotRequest, read off the index at each scrape: what the status says, as numbers."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import ObjectKey

LABELS = ("namespace", "name")
PATHS: dict[str, tuple[str, tuple[str, ...]]] = {
    "capture_lag_seconds": ("Age of the oldest commit not in the change log", ("capture", "lagSeconds")),
    "capture_lag_bytes": ("Source log not in the change log", ("capture", "lagBytes")),
    "retained_bytes": ("Log that the source keeps", ("capture", "retainedBytes")),
    "captured_rows_per_second": ("Row changes captured per second", ("capture", "rowsPerSecond")),
    "apply_lag_seconds": ("Age of the oldest captured commit not in the target", ("apply", "lagSeconds")),
    "applied_rows_per_second": ("Rows applied per second", ("apply", "rowsPerSecond")),
    "driver_ends": ("Ends of the driver's container", ("driver", "restarts")),
    "snapshot_rows_done": ("Rows read by snapshots under way", ("snapshot", "rowsDone")),
    "snapshot_rows_estimated": ("Rows expected by snapshots under way", ("snapshot", "rowsEstimated")),
}
TABLE_STATES = ("waiting", "snapshotting", "replicating", "failing", "stopped")
EXECUTOR_STATES = ("desired", "running", "pending")


class Gauges(Collector):
    def __init__(self, index: Index, shown: Callable[[ObjectKey], bool] = lambda _: True) -> None:
        """`shown`: false for what may be old, or long gone."""
        self._index = index
        self._shown = shown

    @override
    def collect(self) -> Iterable[GaugeMetricFamily]:
        statuses = self._statuses("Replicator")
        for name, (text, path) in PATHS.items():
            family = GaugeMetricFamily(f"tailrace_replicator_{name}", text, labels=LABELS)
            for labels, status in statuses:
                value = _at(status, path)
                if name == "retained_bytes" and _not_observed(status):
                    value = None  # of another time
                if value is not None:
                    family.add_metric(labels, float(value))
            yield family
        yield _counts(statuses, "tables", "Tables by state", TABLE_STATES)
        yield _counts(statuses, "executors", "Executors: desired, running, pending", EXECUTOR_STATES)
        yield _conditions("replicator", statuses)
        yield _conditions("snapshot_request", self._statuses("SnapshotRequest"))

    def _statuses(self, kind: str) -> list[tuple[list[str], Any]]:
        keys = filter(self._shown, self._index.keys(kind))
        return [([key.namespace, key.name], (self._index.get(key) or {}).get("status", {})) for key in keys]


def _counts(statuses: list[tuple[list[str], Any]], block: str, text: str, states: tuple[str, ...]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tailrace_replicator_{block}", text, labels=(*LABELS, "state"))
    for labels, status in statuses:
        for state in states:
            value = _at(status, (block, state))
            if value is not None:
                family.add_metric([*labels, state], float(value))
    return family


def _conditions(resource: str, statuses: list[tuple[list[str], Any]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"tailrace_{resource}_condition", "1: the condition is True", labels=(*LABELS, "type", "reason")
    )
    for labels, status in statuses:
        for condition in status.get("conditions", ()):
            value = 1.0 if condition["status"] == "True" else 0.0
            family.add_metric([*labels, condition["type"], condition["reason"]], value)
    return family


def _not_observed(status: Any) -> bool:
    """True if the log that the source keeps is unknown: neither a driver nor a check has reported recently."""
    if _at(status, ("capture", "retainedAt")) is None:
        return False
    reasons = ("RetainedLogHigh", "RetainedLogLow")
    return not any(c["type"] == "SourceLogAtRisk" and c["reason"] in reasons for c in status.get("conditions", ()))


def _at(status: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        status = status.get(name) if isinstance(status, dict) else None
    return status
