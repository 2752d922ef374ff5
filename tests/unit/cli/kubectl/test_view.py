"""What `kubectl tailrace` prints of resources, also of those that the operator has not written to yet."""

from datetime import UTC, datetime
from typing import Any

from tailrace.cli.kubectl import view
from tailrace_operator.status.models import ReplicatorStatus, SnapshotProgress, SnapshotRequestStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def replicator(**status: object) -> dict[str, Any]:
    found = ReplicatorStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata": {"name": "shop", "namespace": "team"}, "status": found}


def request(**status: object) -> dict[str, Any]:
    found = SnapshotRequestStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata": {"name": "again"}, "status": found}


def test_a_resource_without_a_status_is_pending() -> None:
    bare = {"metadata": {"name": "shop", "namespace": "team"}}
    assert view.detail(bare, [bare], NOW)[:2] == ["shop  Pending", "snapshot shop  Pending"]
    assert view.overview([bare], everywhere=True)[1] == "team        shop"


def test_snapshots_that_nobody_requested_have_a_bar_for_all_of_them() -> None:
    progress = SnapshotProgress(running=2, rows_done=630, rows_estimated=1000, rows_per_second=9.7, seconds_left=40)
    status = replicator(snapshot=progress, snapshot_summary="63%")["status"]
    total = "2 snapshots  [###############---------] 63%  630 of about 1,000 rows, 10/s, 40.0 s left"
    assert view.bars(status, [], NOW) == [total]
    running = request(state="Running", progress="50%", rows_done=50, rows_estimated=100)
    assert [line[:14] for line in view.bars(status, [running], NOW)] == ["2 snapshots  [", "snapshot again"]
    assert len(view.bars(status, [running, running], NOW)) == 2, "they are all there is"


def test_a_request_that_has_ended_has_no_bar_and_one_that_is_paused_no_end() -> None:
    ended = request(state="Completed", progress="100%")
    paused = request(state="Paused", progress="50%", rows_done=50, rows_estimated=100)
    line = "snapshot again  [############------------] 50%  50 of about 100 rows, 0/s  Paused"
    assert view.bars({}, [ended, paused], NOW) == [line]
    running = request(state="Running", progress="50%", estimated_end="2026-01-01T12:05:00Z")
    assert view.request_bar(running, NOW).endswith(", 5 min left")


def test_text_of_a_driver_cannot_move_the_cursor() -> None:
    fault = {"name": "Retry", "message": "\x1b[2J", "fix": "a\nb"}
    lines = view.detail(replicator(last_error=fault, state="Failing"), [], NOW)
    assert "last error  Retry: \\x1b[2J. Fix: a\\nb" in lines
    worst = [{"name": "a.b\x1b[2J", "state": "STOPPED", "fault": fault}]
    assert not any("\x1b" in line for line in view.tables(worst))


def test_while_no_driver_runs_what_is_not_known_is_not_told_as_a_number() -> None:
    known = {"position": "0/1A", "lag_seconds": 2.0}
    apply = {"lag_seconds": 3.0, "rows_per_second": 7.0}
    there = view.detail(replicator(state="Running", capture=known, apply=apply), [], NOW)
    assert there[1:3] == ["captured   to 0/1A, 2.0 s behind", "applied    3.0 s behind, 7 rows/s"]
    seen = {"retained_bytes": 2048, "retained_at": "2026-01-01T11:00:00Z"}
    away = view.detail(replicator(state="Suspended", capture=seen, apply={}), [], NOW)
    kept = "the source keeps 2 KiB of log (at 2026-01-01T11:00:00Z)"
    assert away[1:3] == [f"captured   lag unknown, {kept}", "applied    lag unknown"]


def test_numbers_are_told_in_units() -> None:
    assert [view.seconds(n) for n in (None, 1.25, 600, 7200)] == ["?", "1.2 s", "10 min", "2.0 h"]
