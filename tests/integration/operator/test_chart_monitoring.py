"""What the chart gives Prometheus and Grafana: monitors that find the pods, alerts and dashboards on real metrics."""

import json
import re
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from make_manifests import CHART, rendered
from support.helm import of_kind, only
from tailrace.contract.status import ApplyStatus, CaptureStatus, SnapshotStatus, Status, TableStatus
from tailrace.driver.telling.metrics import render
from tailrace_operator.handlers.gauges import Gauges
from tailrace_operator.metrics import REGISTRY
from tailrace_operator.observe.index import Index

Json = dict[str, Any]


def test_monitoring_is_off_until_it_is_asked_for() -> None:
    assert not {"PodMonitor", "PrometheusRule", "ConfigMap"} & {document["kind"] for document in rendered()}


def test_pod_monitors_find_operator_and_drivers_and_name_the_replicator() -> None:
    documents = rendered("--set", "metrics.podMonitor.enabled=true,metrics.podMonitor.labels.release=prometheus")
    own, drivers = sorted(of_kind(documents, "PodMonitor"), key=lambda d: str(d["metadata"]["name"]))
    assert own["metadata"]["labels"]["release"] == "prometheus"
    labels = only(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert own["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert drivers["spec"]["namespaceSelector"] == {"any": True}
    assert drivers["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["targetLabel"] == "replicator"
    some = rendered("--set", "metrics.podMonitor.enabled=true,watchNamespaces={shop}")
    assert of_kind(some, "PodMonitor")[1]["spec"]["namespaceSelector"] == {"matchNames": ["shop"]}


def known_metrics() -> set[str]:
    """What drivers and operator export, by the code that exports it."""
    status = Status(
        name="shop",
        state="Running",
        started_at=0,
        updated_at=0,
        tables=(TableStatus(name="public.a", state="REPLICATING", lag_seconds=1),),
        snapshots=(SnapshotStatus(id="s", reason="request", state="Running"),),
    )
    full = status.model_copy(
        update={
            "capture": CaptureStatus(lag_seconds=1, lag_bytes=1, retained_bytes=1),
            "apply": ApplyStatus(lag_seconds=1),
        }
    )
    gauges = CollectorRegistry()
    gauges.register(Gauges(Index(lambda *_: None)))
    texts = [render(full).decode(), *(generate_latest(registry).decode() for registry in (REGISTRY, gauges))]
    types = re.findall(r"^# TYPE (\S+) (\S+)$", "\n".join(texts), re.MULTILINE)
    return {f"{name}_bucket" if kind == "histogram" else name for name, kind in types}


def test_dashboards_and_alerts_use_metrics_that_exist() -> None:
    documents = rendered("--set", "metrics.dashboards.enabled=true,metrics.alerts.enabled=true")
    boards = [json.loads(text) for d in of_kind(documents, "ConfigMap") for text in d["data"].values()]
    assert {board["title"] for board in boards} == {"Tailrace / Replicators", "Tailrace / Operator"}
    shown = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    rules = only(documents, "PrometheusRule")["spec"]["groups"][0]["rules"]
    used = {name for text in (*shown, *(rule["expr"] for rule in rules)) for name in re.findall(r"tailrace_\w+", text)}
    assert used - known_metrics() == set()
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in rules)


def test_an_alert_has_the_bounds_of_the_values_and_keeps_prometheus_templates() -> None:
    documents = rendered("--set", "metrics.alerts.enabled=true,settings.lagObjective=77")
    rules = {r["alert"]: r for r in only(documents, "PrometheusRule")["spec"]["groups"][0]["rules"]}
    assert rules["TailraceLagging"]["expr"] == "tailrace_capture_lag_seconds + tailrace_apply_lag_seconds > 77"
    held = rules["TailraceSourceLogHeldBack"]["expr"]
    assert held.endswith('"replicator", "$1", "name", "(.*)")) > 10 * 1024 * 1024 * 1024')
    assert "{{ $labels.replicator }}" in rules["TailraceCaptureStopped"]["annotations"]["summary"]


def alerts(*arguments: str) -> dict[str, Json]:
    rule = only(rendered("--set", "metrics.alerts.enabled=true", *arguments), "PrometheusRule")
    return {alert["alert"]: alert for alert in rule["spec"]["groups"][0]["rules"]}


def test_each_alert_leads_to_its_own_section_and_there_is_none_without_an_alert() -> None:
    page = (CHART.parents[1] / "docs" / "operations.md").read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    sections = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sorted(sections) == sorted(alerts())
    for base in ("docs/operations.md", "https://wiki.example.org/tailrace"):
        found = alerts("--set", f"metrics.alerts.runbookUrl={base}")
        links = {name: alert["annotations"]["runbook_url"] for name, alert in found.items()}
        assert links == {name: f"{base}#{name.lower()}" for name in sections}


def test_a_replicator_that_is_stopped_or_has_long_been_suspended_fires_an_alert() -> None:
    found = alerts()
    assert (found["TailraceStalled"]["for"], found["TailraceSuspended"]["for"]) == ("1m", "1d")
    for name, condition in (("TailraceStalled", "Stalled"), ("TailraceSuspended", "Suspended")):
        assert f'tailrace_replicator_condition{{type="{condition}"}}) == 1' in found[name]["expr"]
