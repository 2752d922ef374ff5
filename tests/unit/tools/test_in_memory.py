"""Where the tests' temporary files are: in memory if there is room for them."""

import os
import subprocess
import sys
from pathlib import Path

import in_memory
import pytest

TOOL = Path(in_memory.__file__)
TELL = "import os, sys; print(os.environ.get('TMPDIR'), os.environ.get('PYTEST_ADDOPTS')); sys.exit(3)"


def test_the_folder_is_new_other_users_may_enter_it_and_it_goes(tmp_path: Path) -> None:
    with in_memory.folder(1, tmp_path) as found:
        assert found is not None and found.parent == tmp_path and found.stat().st_mode & 0o777 == 0o755
        (found / "left").touch()
        told = in_memory.environment(found)
        assert told["TMPDIR"] == str(found) and told["PYTEST_ADDOPTS"].startswith(f"--basetemp={found}/p")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["full", "absent", "uninhabitable"])
def test_without_room_or_where_servers_cannot_live_files_are_where_they_always_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    memory = tmp_path / "absent" if place == "absent" else tmp_path
    needed = 1 << 60 if place == "full" else 1
    if place == "uninhabitable":
        monkeypatch.setattr(in_memory, "habitable", lambda _: False)
    with in_memory.folder(needed, memory) as found:
        assert found is None and in_memory.environment(found) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_container_has_no_more_memory_than_it_is_allowed(tmp_path: Path) -> None:
    assert in_memory.available(tmp_path) == 0, "nothing is known"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\nMemAvailable:       2048 kB\n")
    limit = tmp_path / "sys/fs/cgroup/memory.max"
    limit.parent.mkdir(parents=True)
    for text, bytes_ in (("max\n", 2 << 20), ("1048576\n", 1 << 20), ("4194304\n", 2 << 20)):
        limit.write_text(text)
        assert in_memory.available(tmp_path) == bytes_


@pytest.mark.parametrize("call", ["subprocess.run", "os.setxattr"])
def test_where_programs_may_not_be_started_or_files_have_no_attributes_no_server_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(
        "in_memory.os.setxattr", lambda *_: None
    )  # not every disk has them, and no unit test needs them
    assert in_memory.habitable(tmp_path) and list(tmp_path.iterdir()) == []

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(f"in_memory.{call}", forbidden)
    assert not in_memory.habitable(tmp_path)


def test_the_command_is_told_the_place_and_gives_the_exit_code() -> None:
    command = [sys.executable, str(TOOL), "1000000", sys.executable, "-c", TELL]
    environment = os.environ | {"TMPDIR": "/tmp", "PYTEST_ADDOPTS": "-q"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "/tmp -q\n")
