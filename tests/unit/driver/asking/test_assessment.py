"""What is said of the tables before a first start: counts, the first refusals, and once only."""

from pathlib import Path

import pytest

from support.doctoring import LIMITED, partial, table
from support.dropping import journal, manifest
from support.origins import origin
from tailrace.contract.manifest import load
from tailrace.driver.asking import assessment
from tailrace.driver.asking.doctor import Line, Report
from tailrace.sources.findings import ColumnSupport, TableSize


def test_the_estimate_counts_what_can_be_copied() -> None:
    large, wide = TableSize(2_700_000, 1), TableSize(1, 64 << 20)
    refused = Report(
        (Line("fail", "s.b", "the target cannot hold it", "Rename it."),),
        (table("a", size=large), table("b", size=large), table("c", size=large, stopped=True)),
    )
    assert assessment.Reading.of(refused) == assessment.Reading(1, 0, 2_700_000, 1)
    assert assessment.Reading.of(refused).seconds == pytest.approx(3 + 0.25 + 9)
    assert assessment.Reading.of(Report((), (table("a", size=wide),))).seconds == pytest.approx(3 + 0.25 + 1, abs=0.001)
    assert assessment.Reading.of(Report(())).seconds == 0


@pytest.mark.parametrize(
    ("tables", "rows", "size", "measured"),
    [
        (6, 5_000, 1, 3.7),
        (1, 2_000_000, 85, 8.6),
        (1, 1_000_000, 120, 8.1),
        (1, 200_000, 300, 6.0),
        (1, 600_000, 745, 9.1),
        (1, 15_000, 317, 13.2),
    ],
)
def test_the_estimate_of_measured_snapshots_is_within_twice(tables: int, rows: int, size: int, measured: float) -> None:
    """docs/performance.md, "First snapshots": from 42 bytes to 20 kB a row."""
    seconds = assessment.Reading(tables, 0, rows, size << 20).seconds
    assert measured / 2 < seconds < measured * 2


def test_the_summary_names_the_first_refused_tables_and_counts_the_columns_of_the_others() -> None:
    generated = ColumnSupport("twice", None, None, "NO", *LIMITED)
    refused = tuple(table(f"r{i}", partial("n"), stopped=True) for i in range(7))
    lines = [Line("fail", one.name, "it has no key", "Add one.") for one in refused]
    report = Report((Line("warn", "tables", "x"), *lines), (table("a", partial("n"), generated), table("b"), *refused))
    found = assessment.summary(report, 9.0)
    assert (found.at, found.tables, found.copied, found.inexact_columns) == (9.0, 9, 2, 2)
    assert found.refused == tuple(f"s.r{i}: it has no key. Fix: Add one." for i in range(assessment.NAMED))


def test_what_has_started_once_is_not_assessed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessment, "examine", lambda *_: Report((), (table("a"),)))
    replicator = load(manifest(tmp_path, {"host": "nowhere"})).replicator()
    found = assessment.before_first_start(replicator, None, 1.0)
    assert found is not None and (found.tables, found.copied) == (1, 1)
    journal(tmp_path / "log", origin("log", "", "slot", "1"))
    assert assessment.before_first_start(replicator, None, 1.0) is None


def test_a_fault_of_ours_keeps_no_replicator_from_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Report:
        raise KeyError("sizes")

    monkeypatch.setattr(assessment, "examine", broken)
    replicator = load(manifest(tmp_path, {"host": "nowhere"})).replicator()
    assert assessment.before_first_start(replicator, None, 1.0) is None
    assert "the tables were not assessed: KeyError" in caplog.text


def test_a_source_that_cannot_be_asked_keeps_no_start_waiting(tmp_path: Path) -> None:
    replicator = load(manifest(tmp_path, {"host": "127.0.0.1", "port": 1})).replicator()
    assert assessment.before_first_start(replicator, None, 1.0) is None
