"""What `snapshot`, `resync`, `pause`, `resume` and `stop` print of what a running driver has accepted."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from support.resources import request
from support.scripted_runs import Copy, filled
from tailrace.changelog.records.terms import Key
from tailrace.changelog.state import TableLog
from tailrace.cli import client
from tailrace.cli import main as cli
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.run_dir import RunFolder

Told = Callable[..., str]
STATUS = "; `tailrace status` shows its progress\n"


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(filled("one", "two"), tmp_path)
    with made.running():
        made.level()
        yield made


@pytest.fixture
def told(copy: Copy, capsys: pytest.CaptureFixture[str]) -> Iterator[Told]:
    """Runs a command against the driver; what it prints."""
    folder = RunFolder(copy.folder / "run")
    folder.take()
    server = StatusServer(copy.driver.control, "127.0.0.1", 0, folder.make_token())
    server.start()
    folder.announce(server.url, None)

    def tell(verb: str, *arguments: str, file: Path | None = None) -> str:
        files = ["-f", str(file or copy.manifest), "--run-dir", str(folder.path)]
        assert cli.main([verb, *files, *arguments]) == 0, capsys.readouterr().err
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    try:
        yield tell
    finally:
        server.close()
        folder.release()


def test_an_accepted_snapshot_is_told_with_its_id_its_tables_and_where_to_look(copy: Copy, told: Told) -> None:
    assert told("snapshot", "--tables", "main.*", "--id", "again") == (
        f"{_only(copy, 'again')}: accepted, reads main.one, main.two{STATUS}"
    )
    said = told("snapshot", "--tables", "main.two", "--keys", "007", "--chunk-rows", "5")
    assert re.fullmatch(rf"manual-[\w-]+: accepted, reads main\.two{STATUS}", said)
    plan = copy.state.snapshots[said.partition(":")[0]].plan
    assert (plan.keys, plan.chunk_rows) == ((("7",),), 5)


def test_the_same_snapshot_asked_for_twice_is_told_alike_and_read_once(copy: Copy, told: Told) -> None:
    first = told("snapshot", "--tables", "main.one", "--id", "again")
    assert told("snapshot", "--tables", "main.one", "--id", "again") == first
    assert _only(copy, "again")


def test_each_request_of_a_file_has_a_line(copy: Copy, told: Told, tmp_path: Path) -> None:
    documents = [copy.document, request("first", tables=["main.one"]), request("second", tables=["main.two"])]
    path = tmp_path / "requests.yaml"
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    assert told("snapshot", file=path) == (
        f"{_only(copy, 'first')}: accepted, reads main.one{STATUS}"
        f"{_only(copy, 'second')}: accepted, reads main.two{STATUS}"
    )


def test_an_accepted_resync_is_told_with_the_tables_that_start_over(copy: Copy, told: Told) -> None:
    assert told("resync", "--tables", "main.two", "--id", "over") == (
        f"{_only(copy, 'over')}: accepted, starts over main.two{STATUS}"
    )
    assert told("resync", "--all", "--id", "all") == (
        f"{_only(copy, 'all')}: accepted, starts over main.one, main.two{STATUS}"
    )
    copy.level()
    assert all(copy.state.snapshots[_only(copy, name)].ended for name in ("over", "all"))


def test_what_is_done_to_a_snapshot_under_way_is_told(copy: Copy, told: Told) -> None:
    told("snapshot", "--tables", "main.one", "--id", "again")
    known = _only(copy, "again")
    for verb in ("pause", "resume", "stop"):
        assert told(verb, "again") == f"{known}: {verb} done\n"
        copy.driver.journal.refresh()
    ended = copy.state.snapshots[known].ended
    assert ended is not None and ended.outcome == "stopped"
    assert told("stop", known) == f"{known}: nothing to stop, it has ended: Stopped\n"


def test_a_source_that_takes_longer_to_look_up_keys_than_the_driver_waits_is_waited_for(
    copy: Copy, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, asked = copy.driver.control, threading.Event()
    monkeypatch.setattr(control, "request", partial(control.request, patience=0.05))
    monkeypatch.setattr(client, "LOOK_PAUSE", 0.05)
    runner, canonical = copy.driver.runner, copy.driver.runner.canonical_keys

    def slowly(table: TableLog, keys: Sequence[Key]) -> tuple[Key, ...]:
        asked.set()
        time.sleep(0.3)
        return canonical(table, keys)

    monkeypatch.setattr(runner, "canonical_keys", slowly)
    said = told("snapshot", "--tables", "main.one", "--keys", "7")
    assert asked.is_set() and "accepted, reads main.one" in said


def _only(copy: Copy, name: str) -> str:
    """The id of the only snapshot that was asked for under this name."""
    (found,) = (key for key, snapshot in copy.state.snapshots.items() if snapshot.plan.request == name)
    return found
