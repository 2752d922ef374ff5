"""`tailrace doctor` refuses the change log that a start would refuse, in the same words; else it is ready.

(What the source says of it: `tests/integration/cli/test_doctor_log.py`.)
"""

import json
from pathlib import Path

import pytest

from support.scripted import ScriptedSource
from support.scripted_runs import Copy, filled
from tailrace import sources
from tailrace.changelog.paths import JOURNAL
from tailrace.cli import main as cli
from tailrace.errors import CorruptLog, RemovalUnconfirmed, SourceRefused, TailraceError


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """Its change log exists, nobody writes it."""
    copy = Copy(filled("t", rows=1), tmp_path)
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(copy.database))
    with copy.running():
        copy.level()
    return copy


def doctor(copy: Copy, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    manifest = copy.folder / "replicator.json"
    manifest.write_text(json.dumps(copy.document))
    code = cli.main(["doctor", "-f", str(manifest)])
    return code, capsys.readouterr().out


def check_same(copy: Copy, capsys: pytest.CaptureFixture[str], kind: type[TailraceError], words: str) -> None:
    """Start and doctor say one thing."""
    error = copy.refused(kind, words)
    found, text = doctor(copy, capsys)
    assert found == error.exit_code != 0 and text.endswith("not ready\n"), text
    assert f"fail change log: {error.name}: {error.message}\n     fix: {error.fix}\n" in text, text


def give_to(copy: Copy, owner: str) -> None:
    for record in (copy.folder / "log" / JOURNAL).glob("*.json"):
        record.write_text(record.read_text().replace('"owner":"shop"', f'"owner":"{owner}"'))


def test_the_change_log_of_another_owner(stopped: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    give_to(stopped, "cart")
    check_same(stopped, capsys, SourceRefused, "belongs to Replicator 'cart'")


def test_most_tables_that_the_manifest_no_longer_selects(stopped: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    stopped.document["spec"]["tables"] = {"include": ["other.*"]}
    error = stopped.refused(RemovalUnconfirmed, "no longer select 1 of 1 tables")
    _, text = doctor(stopped, capsys)
    assert error.exit_code == 2 and f"fail change log: {error.name}: {error.message}\n" in text, text
    stopped.document["spec"]["tables"]["confirmRemoval"] = error.fix.split("'")[1]
    with stopped.running():
        stopped.level()


def test_the_manifest_of_an_object_in_kubernetes_is_not_refused_for_want_of_its_uid(
    stopped: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    give_to(stopped, "team/shop@u1")
    code, text = doctor(stopped, capsys)
    assert code == 0 and "warn change log: " in text and "'team/shop@u1'" in text, text


def test_a_journal_that_cannot_be_read(stopped: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    newest = sorted((stopped.folder / "log" / JOURNAL).glob("*.json"))[-1]
    newest.write_text(json.dumps({"number": 1}))
    check_same(stopped, capsys, CorruptLog, "journal record")
