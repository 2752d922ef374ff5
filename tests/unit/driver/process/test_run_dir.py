import errno
import os
from pathlib import Path

import pytest

from tailrace.driver.process.run_dir import AlreadyRunning, NotRunning, RunFolder
from tailrace.errors import InvalidManifest, StorageFull


def test_a_run_directory_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.take()
    with pytest.raises(AlreadyRunning, match="another"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_the_server_is_found_while_it_is_announced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(NotRunning):
        folder.server()
    folder.take()
    token = folder.make_token()
    folder.announce("http://127.0.0.1:9", None, "file:///log")
    with pytest.raises(InvalidManifest, match=r"storage\.location file:///log, this manifest has file:///other"):
        RunFolder(tmp_path).server("file:///other")
    url, path = RunFolder(tmp_path).server("file:///log")
    assert (url, path.read_text(), path.stat().st_mode & 0o777) == ("http://127.0.0.1:9", token, 0o600)
    folder.retract()
    with pytest.raises(NotRunning):
        folder.server()
    folder.release()


def test_a_full_run_directory_is_told_by_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "token"))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageFull, match=r"token: No space left on device"):
        RunFolder(tmp_path).make_token()


def test_the_server_of_a_killed_driver_is_not_taken_for_whoever_listens_there_now(tmp_path: Path) -> None:
    killed = RunFolder(tmp_path)
    killed.take()
    killed.announce("http://127.0.0.1:9", None)
    killed.release()
    with pytest.raises(NotRunning, match="no driver runs"):
        RunFolder(tmp_path).server()


def test_a_long_path_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    assert len(str(RunFolder(long).socket)) < 100
    assert RunFolder(long).socket != RunFolder(tmp_path / ("y" * 120)).socket
    assert RunFolder(tmp_path).socket == tmp_path / "capture.sock"
