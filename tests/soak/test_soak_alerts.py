"""The chart's alerts, evaluated by Prometheus' own `promtool test rules`: when each fires, and when it does not.

`promtool` is taken from the search path, or built from its Go module, which takes minutes: therefore not in CI.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cluster import places
from cluster.build import FLAGS, environment
from support.helm import helm, only
from tailrace.spark import artifacts

VERSION = "v0.316.0"
CHART = Path(places.__file__).parents[2] / "charts" / "tailrace"
LEADER = {'tailrace_operator_leader{pod="a"}': "1x3000"}
OF = 'namespace="team",replicator="shop"'


def condition(type_: str, reason: str = "Because") -> str:
    return f'tailrace_replicator_condition{{namespace="team",name="shop",type="{type_}",reason="{reason}"}}'


def changes(late: str, met: str, ratio: float = 0.99) -> dict[str, str]:
    """`spec.objective` with this many changes a minute."""
    named = f"tailrace_objective_changes_total{{{OF},result="
    return {
        f'{named}"late"}}': late,
        f'{named}"met"}}': met,
        f"tailrace_objective_ratio{{{OF}}}": f"{ratio}x3000",
    }


@dataclass(frozen=True)
class Case:
    """Samples of each minute, and the severities of alerts of this name that fire then, and no others."""

    alert: str
    series: Mapping[str, str]
    at: Mapping[str, tuple[str, ...]]


BURNS = "TailraceFreshnessBudgetBurns"
NEVER = {"1m": (), "10m": (), "1h": (), "6h": (), "1d": ()}
CASES = (
    Case("TailraceStalled", {condition("Stalled"): "0x9 1x100"}, {"10m": (), "12m": ("critical",)}),
    Case("TailraceNotReady", {condition("Ready"): "1x9 0x100"}, {"24m": (), "26m": ("warning",)}),
    Case("TailraceSuspended", {condition("Suspended"): "0x9 1x2000"}, {"1440m": (), "1452m": ("warning",)}),
    Case("TailraceCaptureStopped", {f"tailrace_capture_alive{{{OF}}}": "1x9 0x90"}, {"11m": (), "13m": ("critical",)}),
    Case(
        "TailraceSourceLogHeldBack",
        {f"tailrace_source_retained_bytes{{{OF}}}": "10000000000x9 11000000000x100"},
        {"14m": (), "16m": ("critical",)},
    ),
    Case(
        "TailraceSourceLogHeldBack",
        {'tailrace_replicator_retained_bytes{namespace="team",name="shop"}': "10000000000x9 11000000000x100"},
        {"14m": (), "16m": ("critical",)},
    ),
    Case(
        "TailraceSourceLogNotObserved",
        {condition("SourceLogAtRisk", "NotObserved"): "_x9 0x200"},
        {"68m": (), "71m": ("warning",)},
    ),
    Case(
        "TailraceLagging",
        {f"tailrace_capture_lag_seconds{{{OF}}}": "1x200", f"tailrace_apply_lag_seconds{{{OF}}}": "1x9 100000x100"},
        {"14m": (), "16m": ("warning",)},
    ),
    Case(
        "TailraceTableFailing",
        {f'tailrace_table_failing{{{OF},table="public.a"}}': "0x9 1x100"},
        {"19m": (), "21m": ("warning",)},
    ),
    Case(
        "TailraceCopyDiffers",
        {f'tailrace_table_differences{{{OF},table="public.a"}}': "0x9 3x20 0x100"},
        {"10m": (), "12m": ("warning",), "40m": ()},
    ),
    Case(
        "TailraceValuesNulled",
        {f'tailrace_table_nulled_values_total{{{OF},table="public.a",column="b"}}': "0x9 5x200"},
        {"9m": (), "11m": ("info",), "80m": ()},
    ),
    Case("TailraceExecutorsMissing", {condition("ExecutorsReady"): "1x9 0x100"}, {"19m": (), "21m": ("warning",)}),
    Case("TailraceFollowerSilent", {condition("FollowersReading"): "1x9 0x30 1x30"}, {
        "19m": (), "21m": ("warning",), "50m": (),
    }),
    Case("TailraceOperatorBehind", {'tailrace_operator_overdue_seconds{pod="a"}': "5x9 61x100"}, {
        "14m": (), "16m": ("warning",),
    }),
    Case("TailraceNamespaceRefused", {'tailrace_operator_refused_namespaces{namespace="shop"}': "0x9 1x100"}, {
        "14m": (), "16m": ("warning",),
    }),
    # A fifth of all changes is late, 20 times what is allowed: the hour is over its 14.4 after 43 minutes, ...
    Case(BURNS, changes("0x120 0+20x60 1200x200", "0+100x120 12000+80x60 16800+100x200"), {
        "2h": (), "130m": (), "160m": (), "170m": ("critical",),
        # ... all six hours are over their 6 after 52, and when it ends, the short windows end the alerts.
        "190m": ("warning",), "230m": (),
    }),
    Case(BURNS, changes("0+8x3000", "0+92x3000"), {"10m": (), "1h": ("warning",), "7h": ("warning",)}),
    Case(BURNS, changes("0+2x3000", "0+98x3000"), NEVER),
    Case(BURNS, changes("0+8x3000", "0+92x3000", ratio=0.95), NEVER),
    Case(BURNS, changes("5x3000", "100x3000"), NEVER),  # nothing comes at all
    # Objectives that allow more than a fourteenth of all changes to be late: 14.4 times as many cannot come.
    Case(BURNS, changes("0+95x3000", "0+5x3000", ratio=0.5), {"1m": (), "1h": ("critical", "warning")}),
    Case(BURNS, changes("0+80x3000", "0+20x3000", ratio=0.5), {"10m": (), "1h": ("warning",), "7h": ("warning",)}),
    Case(BURNS, changes("0+60x3000", "0+40x3000", ratio=0.5), NEVER),
    Case(BURNS, changes("0+95x3000", "0+5x3000", ratio=0.9), {"1m": (), "1h": ("critical", "warning")}),
    Case(BURNS, changes("0+50x3000", "0+50x3000", ratio=0.9), NEVER),
)  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> str:
    found, built = shutil.which("promtool"), artifacts.cache_dir() / f"promtool-{VERSION}"
    if found is None and not (built / "promtool").exists():
        package = f"github.com/prometheus/prometheus/cmd/promtool@{VERSION}"
        command = ["go", "install", *FLAGS, "-tags", "remove_all_sd", package]
        subprocess.run(command, env=environment(GOBIN=str(built)), check=True, timeout=1500)
    return found or str(built / "promtool")


def expected(case: Case, firing: tuple[str, ...]) -> list[dict[str, object]]:
    return [{"labels": f'{{alertname="{case.alert}", severity="{severity}"}}', "value": 1} for severity in firing]


def checked(case: Case) -> dict[str, object]:
    series = {**LEADER, **case.series}
    shown = 'count by (alertname, severity) (ALERTS{alertstate="firing"})'
    looks = [{"expr": shown, "eval_time": at, "exp_samples": expected(case, firing)} for at, firing in case.at.items()]
    named = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "name": case.alert, "input_series": named, "promql_expr_test": looks}


@pytest.mark.timeout(1800)
def test_every_alert_fires_when_it_should_and_not_before(promtool: str, tmp_path: Path) -> None:
    rendered = [
        document
        for document in yaml.safe_load_all(helm("template", "t", str(CHART), "--set", "metrics.alerts.enabled=true"))
        if document
    ]
    spec = only(rendered, "PrometheusRule")["spec"]
    absent = {
        "interval": "1m",
        "name": "TailraceOperatorAbsent",
        "input_series": [{"series": 'tailrace_operator_leader{pod="a"}', "values": "1x9 0x100"}],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "14m", "exp_samples": []},
            {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "16m",
             "exp_samples": [{"labels": "{}", "value": 1}]},
        ],
    }  # fmt: skip
    names = {rule["alert"] for rule in spec["groups"][0]["rules"]}
    assert names == {case.alert for case in CASES} | {"TailraceOperatorAbsent"}, "each alert has a case"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [*map(checked, CASES), absent]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests, sort_keys=False))
    command = [promtool, "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
