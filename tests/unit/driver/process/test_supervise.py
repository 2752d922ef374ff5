import errno
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.waiting import until
from tailrace.capture import last_fault
from tailrace.changelog.records.terms import Position
from tailrace.driver.process import supervise
from tailrace.driver.process.supervise import CaptureProcess, is_capture
from tailrace.errors import MAKE_ROOM, AuthenticationFailed, Fenced, PositionLost

MARK = "tailrace.capture.process"
"""Stands in the stand-in's command line, as in the real one."""


def process(
    tmp_path: Path, code: str, answers: bool = False, clock: Callable[[], float] = time.monotonic
) -> CaptureProcess:
    return CaptureProcess([sys.executable, "-c", code, MARK, str(tmp_path)], tmp_path, lambda: answers, clock)


def until_ended(capture: CaptureProcess) -> None:
    child = capture._child
    assert child is not None
    until(lambda: child.poll() is not None, "its end")


def ends(capture: CaptureProcess) -> int:
    """That are told; 0: it works."""
    return capture.fault.count if capture.fault is not None else 0


@pytest.mark.parametrize(("code", "error"), [(12, PositionLost), (13, Fenced)])
def test_an_exit_code_that_nobody_should_repeat_becomes_the_same_error(
    tmp_path: Path, code: int, error: type[Exception]
) -> None:
    fault = {"name": "any", "message": "the slot is gone", "fix": "make a new log"}
    program = (
        f"import pathlib; pathlib.Path({str(tmp_path / 'capture-fault.json')!r}).write_text({json.dumps(fault)!r})"
    )
    capture = process(tmp_path, f"{program}; raise SystemExit({code})")
    capture.start()
    until_ended(capture)
    with pytest.raises(error, match="the slot is gone"):
        capture.check()


def test_a_password_that_was_accepted_and_is_refused_now_has_a_minute_to_be_rotated(tmp_path: Path) -> None:
    """A connection that broke between the server's change and the file's ended the run."""
    now = [0.0]
    capture = process(tmp_path, "raise SystemExit(11)", clock=lambda: now[0])
    capture.start()
    until_ended(capture)
    with pytest.raises(AuthenticationFailed):
        capture.check()  # it was never accepted

    capture.start()
    capture.works(Position(7))
    starts = 0
    with pytest.raises(AuthenticationFailed):
        while now[0] < 120:
            if capture.pid is not None:
                until_ended(capture)
                starts += 1
            capture.check()
            assert capture.fault is not None and capture.fault.message == "capture ended with code 11"
            now[0] += 0.5
    assert 60 <= now[0] < 90 and starts < 12, "a server may lock who tries too often"

    capture.start()
    capture.works(Position(8))
    until_ended(capture)
    capture.check()
    assert ends(capture) == 1, "the next rotation has a minute of its own"
    capture.stop()


def test_any_other_end_is_answered_with_a_restart_after_a_growing_pause(tmp_path: Path) -> None:
    now = [0.0]
    capture = process(tmp_path, "raise SystemExit(1)", clock=lambda: now[0])
    capture.start()
    pids = [capture.pid]
    for pause in (0.5, 1.0, 2.0):
        until_ended(capture)
        capture.check()
        now[0] += pause - 0.01
        capture.check()
        assert capture.pid is None
        now[0] += 0.02
        capture.check()
        pids.append(capture.pid)
    assert len(set(pids)) == 4
    capture.stop()


def test_why_capture_ended_is_told_until_another_one_works(tmp_path: Path) -> None:
    fault = {"name": "Retry", "message": "cannot connect to db:5432", "where": "source"}
    program = (
        f"import pathlib; pathlib.Path({str(tmp_path / 'capture-fault.json')!r}).write_text({json.dumps(fault)!r})"
    )
    now = [0.0]
    capture = process(tmp_path, f"{program}; raise SystemExit(1)", clock=lambda: now[0])
    capture.start()
    for count in (1, 2):
        until_ended(capture)
        capture.check()
        found = capture.fault
        assert found is not None
        assert (found.name, found.count) == ("CaptureEnded", count)
        assert found.message == "capture ended with code 1: Retry: cannot connect to db:5432"
        assert found.where == "source"
        now[0] += 5
        capture.check()
    assert capture.fault == found, "it has been started again, and nobody knows yet whether it works"
    capture.works(Position(7))
    assert capture.fault is None
    capture.stop()


def test_a_capture_that_ends_at_the_same_place_again_and_again_does_not_work_in_between(tmp_path: Path) -> None:
    """Between two starts the status said Running, with a lag of 0.0 s, and counted one end however often it was."""
    now = [0.0]
    capture = process(tmp_path, "raise SystemExit(1)", clock=lambda: now[0])
    capture.start()
    capture.works(Position(7))
    for count in (1, 2, 3):
        until_ended(capture)
        capture.check()
        assert ends(capture) == count
        now[0] += 5
        capture.check()
        capture.works(Position(7))
        now[0] += 2
        capture.works(Position(7))
        assert ends(capture) == count, "it has come no further than the one before"
    capture.works(Position(8))
    assert ends(capture) == 0
    until_ended(capture)
    capture.check()
    assert ends(capture) == 1
    now[0] += 5
    capture.check()
    capture.works(Position(8))
    now[0] += 10
    capture.works(Position(8))
    assert ends(capture) == 0, "an idle source's log goes no further"
    capture.stop()


def test_a_capture_that_was_killed_is_its_own_fault_and_a_storage_that_is_away_is_the_storages(tmp_path: Path) -> None:
    for fault, where in (
        (None, "capture"),
        ({"name": "Retry", "message": "s3 is away", "where": "storage"}, "storage"),
    ):
        leave = (
            f"pathlib.Path({str(tmp_path / 'capture-fault.json')!r}).write_text({json.dumps(fault)!r})" if fault else ""
        )
        capture = process(tmp_path, f"import os, pathlib; {leave or 0}; os.kill(os.getpid(), 9)")
        capture.start()
        until_ended(capture)
        capture.check()
        assert capture.fault is not None and capture.fault.where == where
        capture.stop()


def test_a_living_capture_that_answers_is_adopted_and_ended_in_order(tmp_path: Path) -> None:
    first = process(tmp_path, "import time; time.sleep(60)")
    first.start()
    assert first.pid is not None
    until(lambda: is_capture(first.pid or 0, tmp_path), "its command line")
    second = process(tmp_path, "raise SystemExit(1)", answers=True)
    second.start()
    assert second.pid == first.pid
    second.check()
    second.stop(grace=5)
    assert first._child is not None
    assert first._child.wait(5) == -signal.SIGTERM


def test_a_living_capture_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    first = process(tmp_path, "import time; time.sleep(60)")
    first.start()
    until(lambda: is_capture(first.pid or 0, tmp_path), "its command line")
    second = process(tmp_path, "import time; time.sleep(60)")
    second.start()
    assert second.pid != first.pid
    until_ended(first)  # it is gone a moment before it can be waited for
    second.stop()


def test_a_pid_that_belongs_to_another_program_is_not_capture(tmp_path: Path) -> None:
    assert not is_capture(1, tmp_path)
    assert not is_capture(2**22 + 1, tmp_path)


def test_the_capture_of_another_replicator_that_got_our_old_pid_is_left_alone(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "b"
    for folder in (ours, theirs):
        folder.mkdir()
    other = process(theirs, "import time; time.sleep(60)")
    other.start()
    until(lambda: is_capture(other.pid or 0, theirs), "its command line")
    (ours / "capture.pid").write_text(str(other.pid))
    capture = process(ours, "import time; time.sleep(60)")
    capture.start()
    assert other._child is not None and other._child.poll() is None
    assert capture.pid != other.pid
    for one in (capture, other):
        one.stop()


def test_a_full_disk_is_told_by_its_own_name_and_with_its_fix(tmp_path: Path) -> None:
    """As the source's fault it would send people to the wrong machine."""
    fault = {"name": "StorageFull", "message": "file:///log: No space left on device", "fix": MAKE_ROOM}
    program = (
        f"import pathlib; pathlib.Path({str(tmp_path / 'capture-fault.json')!r}).write_text({json.dumps(fault)!r})"
    )
    capture = process(tmp_path, f"{program}; raise SystemExit(1)")
    capture.start()
    until_ended(capture)
    capture.check()
    assert capture.fault is not None
    assert (capture.fault.name, capture.fault.fix) == ("StorageFull", MAKE_ROOM)
    assert "file:///log" in capture.fault.message
    capture.stop()


def test_a_restart_that_the_system_refuses_is_tried_again(tmp_path: Path) -> None:
    """No memory, no process ids, no open files: whatever it is, nobody has to change a manifest for it."""
    now, program = [0.0], tmp_path / "program"
    program.symlink_to(sys.executable)
    command = [str(program), "-c", "raise SystemExit(1)", MARK, str(tmp_path)]
    capture = CaptureProcess(command, tmp_path, lambda: False, lambda: now[0])
    capture.start()
    before = capture.pid
    until_ended(capture)
    capture.check()
    program.unlink()
    for _ in range(3):
        now[0] += 60
        capture.check()
        assert capture.pid is None and ends(capture) == 1
    program.symlink_to(sys.executable)
    now[0] += 60
    capture.check()
    assert capture.pid not in (None, before)
    capture.stop()


def test_a_capture_whose_pid_cannot_be_recorded_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another would be started beside it."""
    now = [0.0]
    capture = process(tmp_path, "raise SystemExit(1)", clock=lambda: now[0])
    capture.start()
    until_ended(capture)
    capture.check()
    write, pids = last_fault.write_in_place, list[int]()

    def refuse(path: Path, text: bytes) -> None:
        if text:
            pids.append(int(text))
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        write(path, text)

    monkeypatch.setattr(supervise, "write_in_place", refuse)
    for _ in range(3):
        now[0] += 60
        capture.check()
    assert len(pids) == 3 and not any(is_capture(pid, tmp_path) for pid in pids)
    monkeypatch.undo()
    now[0] += 60
    capture.check()
    assert capture.pid not in (None, *pids)
    capture.stop()
