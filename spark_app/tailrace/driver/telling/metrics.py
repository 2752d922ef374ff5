"""Prometheus text made from a status document: one source for both, so that they cannot disagree."""

from collections.abc import Iterable

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from typing_extensions import override

from tailrace.contract.status import Status, TableCounters


def render(status: Status) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(status))
    return bytes(generate_latest(registry))


class _Once(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    @override
    def collect(self) -> Iterable[Metric]:
        status = self._status
        works = status.state not in ("Starting", "Stopped") and status.fault is None
        yield _gauge(
            "tailrace_up", "1 while driver and capture work, whatever the state of single tables", float(works)
        )
        yield _gauge("tailrace_capture_alive", "1 while capture answers", float(status.capture.alive))
        yield _gauge("tailrace_capture_record", "Newest durable journal record", status.capture.record)
        yield _gauge("tailrace_capture_lag_seconds", "Age of what is not in the change log", status.capture.lag_seconds)
        yield _gauge("tailrace_capture_lag_bytes", "Source log not yet in the change log", status.capture.lag_bytes)
        yield _gauge("tailrace_source_retained_bytes", "Log kept for this Replicator", status.capture.retained_bytes)
        yield _gauge("tailrace_apply_lag_seconds", "Age of the oldest commit not applied", status.apply.lag_seconds)
        yield _gauge("tailrace_apply_record", "Record that every running table has applied", status.apply.record)
        text = "Copies of dropped tables that are still to be deleted (onTableDrop: Drop)"
        yield _gauge("tailrace_dropped_tables_waiting", text, len(status.dropping))
        cuts = status.cuts
        yield _gauge("tailrace_cuts_kept", "Cuts whose versions are kept", 0 if cuts is None else cuts.kept)
        text = "The time at which the newest cut was made"
        yield _gauge("tailrace_cut_last_timestamp_seconds", text, None if cuts is None else cuts.made)
        yield _followers(status)
        yield from _notifications(status)
        yield from _freshness(status)
        yield from _tables(status)
        yield from _lineage(status)
        yield from _snapshots(status)


def _followers(status: Status) -> GaugeMetricFamily:
    text = "Replicators that follow this change log, by whether it is kept for them"
    family = GaugeMetricFamily("tailrace_followers", text, labels=("held",))
    for held in (True, False):
        family.add_metric([str(held).lower()], sum(one.held is held for one in status.followers))
    return family


def _notifications(status: Status) -> Iterable[Metric]:
    text = "Events about this Replicator (spec.notifications), by result"
    results = CounterMetricFamily("tailrace_notifications", text, labels=("result",))
    found = status.notifications
    if found is not None:
        results.add_metric(["sent"], found.sent)
        results.add_metric(["failed"], found.failed)
        results.add_metric(["dropped"], found.dropped)
        results.add_metric(["lost"], found.lost)
    waiting = _gauge("tailrace_notifications_waiting", "Events to be sent", None if found is None else found.waiting)
    yield from (results, waiting)


def _freshness(status: Status) -> Iterable[Metric]:
    measured, objective = status.freshness, status.objective
    text = "Age of changes when they became visible in the target, since the start"
    ages = HistogramMetricFamily("tailrace_freshness_seconds", text, labels=())
    text = "Changes since the start, by whether they were in time (spec.objective)"
    changes = CounterMetricFamily("tailrace_objective_changes", text, labels=("result",))
    if measured is not None:
        bounds = [(str(one.seconds), one.changes) for one in measured.by_age]
        ages.add_metric([], [*bounds, ("+Inf", measured.since_start)], None)
        if objective is not None:
            changes.add_metric(["met"], measured.since_start - objective.late)
            changes.add_metric(["late"], objective.late)
    asked = None if objective is None else objective.percent / 100
    yield from (ages, changes, _gauge("tailrace_objective_ratio", "Share of changes that is to be in time", asked))


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=())
    if value is not None:
        family.add_metric([], value)
    return family


def _tables(status: Status) -> Iterable[Metric]:
    rows = CounterMetricFamily("tailrace_table_changes", "Changes applied since the start", labels=("table", "op"))
    lags = GaugeMetricFamily("tailrace_table_lag_seconds", "Age of the oldest commit not applied", labels=("table",))
    failing = GaugeMetricFamily("tailrace_table_failing", "1 while the table fails or is stopped", labels=("table",))
    holes = GaugeMetricFamily("tailrace_table_holes", "Rows withheld until they are read again", labels=("table",))
    text = "1 while readers see the table as it was before it is read again"
    replacing = GaugeMetricFamily("tailrace_table_replacing", text, labels=("table",))
    text = "Age of the oldest effect of foreign keys, below the source's log, whose rows are still to be read again"
    converging = GaugeMetricFamily("tailrace_table_converging_seconds", text, labels=("table",))
    text = "Values that their type cannot hold and that became NULL"
    nulled = CounterMetricFamily("tailrace_table_nulled_values", text, labels=("table", "column"))
    text = "Rows that the last verification found to differ from the source"
    differing = GaugeMetricFamily("tailrace_table_differences", text, labels=("table",))
    text = "The time of the last verification"
    verified = GaugeMetricFamily("tailrace_table_verified_timestamp_seconds", text, labels=("table",))
    for table in status.tables:
        if table.verified is not None:
            differing.add_metric([table.name], table.verified.compared.differences)
            verified.add_metric([table.name], table.verified.at)
        for one in table.nulled:
            nulled.add_metric([table.name, one.column], one.values)
        for op in TableCounters.model_fields:
            rows.add_metric([table.name, op], getattr(table.counters, op))
        if table.lag_seconds is not None:
            lags.add_metric([table.name], table.lag_seconds)
        failing.add_metric([table.name], float(table.state in ("FAILING", "STOPPED")))
        holes.add_metric([table.name], table.holes)
        replacing.add_metric([table.name], float(table.replacing))
        since = table.converging_since
        converging.add_metric([table.name], 0.0 if since is None else max(status.updated_at - since, 0.0))
    yield from (rows, lags, failing, holes, replacing, converging, nulled, differing, verified)


def _snapshots(status: Status) -> Iterable[Metric]:
    done = GaugeMetricFamily("tailrace_snapshot_rows_done", "Rows read and recorded", labels=("snapshot",))
    estimated = GaugeMetricFamily("tailrace_snapshot_rows_estimated", "Expected rows", labels=("snapshot",))
    for snapshot in status.snapshots:
        if snapshot.rewind is None and snapshot.state in ("Pending", "Running", "Paused"):
            done.add_metric([snapshot.id], snapshot.rows_done)
            estimated.add_metric([snapshot.id], snapshot.rows_estimated)
    yield from (done, estimated)


def _lineage(status: Status) -> Iterable[Metric]:
    told, text = status.lineage, "Lineage events since the start, by what became of them"
    events = CounterMetricFamily("tailrace_lineage_events", text, labels=("result",))
    if told is not None:
        events.add_metric(["sent"], told.sent)
        events.add_metric(["dropped"], told.dropped)
    waiting = None if told is None else told.waiting
    yield from (events, _gauge("tailrace_lineage_events_waiting", "Lineage events not delivered yet", waiting))
