"""`tailrace cut` and `tailrace cuts`, with a driver that answers as told."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from support.resources import replicator
from tailrace.cli import commands
from tailrace.cli import main as cli
from tailrace.contract.driver import CutList, CutReport, CutTable
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.server import Conflict, StatusServer, Unknown
from tailrace.driver.process.run_dir import RunFolder

HELD = CutTable(name="public.a", version="12")
COMING = CutTable(name="public.b", why="it has not come to the cut yet", waits=True)


def cut(name: str, *tables: CutTable) -> CutReport:
    complete, waits = all(t.why is None for t in tables), any(t.waits for t in tables)
    return CutReport(
        name=name, record=7, position="0/2A", commit_time=1.5, made=2.0, scheduled=False, complete=complete,
        waits=waits, tables=tables,
    )  # fmt: skip


class Cutting(DriverControl):
    """Table b comes to a cut at the second look, or never."""

    later = COMING
    known: CutReport | None = None
    let_go: tuple[str, ...] = ()

    @override
    def make_cut(self, name: str) -> CutReport:
        if name == "taken":
            raise Conflict("there is a cut 'taken'", "Choose another name.")
        self.known = cut(name, HELD, COMING)
        return self.known

    @override
    def cuts(self) -> CutList:
        assert self.known is not None
        return CutList(cuts=(cut("old", HELD), cut(self.known.name, HELD, self.later)))

    @override
    def drop_cut(self, name: str) -> None:
        if name == "unknown":
            raise Unknown("there is no cut 'unknown'", "`tailrace cuts` shows all.")
        self.let_go += (name,)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cutting]:
    monkeypatch.setattr(commands, "REPORT_PAUSE", 0.01)
    path = tmp_path / "m.yaml"
    path.write_text(json.dumps(replicator()))
    folder = RunFolder(tmp_path / "run")
    folder.take()
    control = Cutting("shop")
    server = StatusServer(control, "127.0.0.1", 0, folder.make_token())
    server.start()
    folder.announce(server.url, None)
    yield control
    server.close()
    folder.release()


def run(tmp_path: Path, command: str, *arguments: str) -> int:
    return cli.main([command, "-f", str(tmp_path / "m.yaml"), "--run-dir", str(tmp_path / "run"), *arguments])


def test_a_cut_is_waited_for_and_shown(tmp_path: Path, control: Cutting, capsys: pytest.CaptureFixture[str]) -> None:
    control.later = CutTable(name="public.b", version="9")
    assert run(tmp_path, "cut", "noon") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "noon: complete; record 7, position 0/2A, commits up to 1970-01-01T00:00:01.500000Z"
    assert printed[1:] == ["  public.a: version 12", "  public.b: version 9"]
    assert run(tmp_path, "cut", "--json") == 0
    name = json.loads(capsys.readouterr().out)["name"]
    assert len(name) == len("20261128_120000") and name[8] == "_"


def test_a_cut_that_lacks_a_table_is_said_to(
    tmp_path: Path, control: Cutting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "cut", "noon", "--wait", "50ms") == 1
    printed = capsys.readouterr()
    assert "noon: under way; " in printed.out and "cut noon lacks public.b" in printed.err
    assert run(tmp_path, "cuts") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "noon: under way; record 7, position 0/2A, commits up to 1970-01-01T00:00:01.500000Z",
        "  public.b: not in it: it has not come to the cut yet",
    ]
    assert run(tmp_path, "cuts", "--json") == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["cuts"]] == ["old", "noon"]


def test_a_cut_is_dropped_by_name_and_refusals_come_with_their_fix(
    tmp_path: Path, control: Cutting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "cut", "--drop", "noon") == 0
    assert (control.let_go, capsys.readouterr().out) == (("noon",), "noon: dropped\n")
    assert run(tmp_path, "cut", "--drop") == 2
    assert run(tmp_path, "cut", "--drop", "unknown") == 1
    assert run(tmp_path, "cut", "taken") == 1
    said = capsys.readouterr().err
    assert "--drop needs the name of a cut" in said
    assert "Unknown: there is no cut 'unknown'" in said and "Conflict: there is a cut 'taken'" in said
