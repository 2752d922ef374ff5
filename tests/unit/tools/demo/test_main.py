"""The demo's own folder, and what it makes of a process that is slow to answer."""

import socket
from pathlib import Path

import pytest
from rich.console import Console

from demo.__main__ import Demo, empty
from demo.targets import LakeFolder
from tailrace.cli import client
from tailrace.driver.process.run_dir import RunFolder


def test_the_demo_empties_its_own_folder_and_nobody_else_s(tmp_path: Path) -> None:
    own, foreign = tmp_path / "a" / "own", tmp_path / "foreign"
    assert empty(own)
    (own / "lake").mkdir()
    assert empty(own)
    assert not (own / "lake").exists()
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    assert not empty(foreign)
    assert not empty(foreign / "thesis.txt")
    assert (foreign / "thesis.txt").exists()


def test_a_process_that_does_not_answer_has_no_status_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.05)
    demo = Demo(tmp_path, 1.0, LakeFolder(tmp_path, "delta"), Console())
    assert demo.status() is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        folder = RunFolder(demo.state)
        folder.take()
        folder.announce(f"http://127.0.0.1:{silent.getsockname()[1]}", None)
        assert demo.status() is None
        folder.release()
