"""`tailrace status` where no driver runs and a cutover may have ended the replication."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.resources import SOURCE, replicator
from tailrace.changelog.journal import JournalReader
from tailrace.cli import cutover_done
from tailrace.cli import main as cli
from tailrace.contract.driver import CutoverReport
from tailrace.contract.manifest import load
from tailrace.errors import CutOver
from tailrace.places import Places

REPORT = CutoverReport(at=1.0, position="0/2A", record=7, source="old", target="new", tables=())


def told(folder: Path, patch: pytest.MonkeyPatch, report: str) -> list[str]:
    """The lines for a target that keeps this report."""
    database = {"type": "postgresql", "host": "new", "database": "shop", "username": "tailrace"}
    path = folder / "m.yaml"
    path.write_text(json.dumps(replicator(target={**database, "credentials": SOURCE["credentials"]})))
    log = SimpleNamespace(state=SimpleNamespace(origin=SimpleNamespace(log_id="log")))
    target = SimpleNamespace(handover=lambda: SimpleNamespace(done=lambda _: report))
    patch.setattr(JournalReader, "open", lambda _: log)
    patch.setattr(Places, "target", target)
    patch.setattr(Places, "storage", None)
    return cutover_done.lines_of(load(path), "shop", None)


def test_a_cutover_that_is_done_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = told(tmp_path, monkeypatch, REPORT.model_dump_json(by_alias=True))
    assert lines[:2] == ["shop  Succeeded", "CutOver at 1970-01-01 00:00:01 UTC: programs may write to new"]
    assert "the tables stay" in lines[2]


def test_programs_that_read_the_document_are_not_told_to_start_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told(tmp_path, monkeypatch, REPORT.model_dump_json(by_alias=True))
    asked = ["status", "-f", str(tmp_path / "m.yaml"), "--run-dir", str(tmp_path / "run"), "--json"]
    assert cli.main(asked) == 1
    said = capsys.readouterr()
    assert said.out == "" and "NotRunning" in said.err and f"Fix: {CutOver.usual_fix}" in said.err
    assert "run, and a cutover has ended the replication. Fix" in said.err and "Start" not in said.err


@pytest.mark.parametrize("added", [{"later": 1}, {"at": "noon"}])
def test_a_report_of_a_later_version_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: dict[str, object]
) -> None:
    """The command then says what it says without one: that no driver runs."""
    newer = REPORT.model_dump(mode="json", by_alias=True) | added
    assert told(tmp_path, monkeypatch, json.dumps(newer)) == []
