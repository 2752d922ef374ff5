"""How a driver around parts that do nothing, or fail, ends a run."""

import dataclasses
import json
import logging
import signal
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from typing_extensions import override

from support.fake_driver import AWAIT_JOURNAL, log_in, ready
from support.origins import origin
from support.resources import replicator
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.manifest import parse
from tailrace.contract.resources import TargetSpec
from tailrace.contract.status import Fault, LineageStatus
from tailrace.driver import assembly, driver
from tailrace.driver.driver import Driver
from tailrace.driver.launch import DriverSettings
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import CutOver, InvalidManifest, PositionLost, Retry, SourceRefused, TailraceError
from tailrace.places import Places
from tailrace.spark import session


def test_a_jvm_that_cannot_stop_does_not_hide_what_ended_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Py4JNetworkError("connection refused")
    made, done = ready(
        tmp_path, monkeypatch, capture_check=PositionLost("the slot is gone"), stream_stop=gone, spark_stop=gone
    )
    with pytest.raises(PositionLost):
        made.run()
    for part in ("runner", "applier", "capture"):
        assert f"{part} stop" in done
    assert done.index("view show last") < done.index("view close")
    assert not (tmp_path / "server.json").exists()


@pytest.mark.parametrize(
    "refusal",
    [PositionLost("the slot is gone"), SourceRefused("the source has no such database"), CutOver("it is done")],
)
def test_an_old_source_that_refuses_after_a_cutover_does_not_hide_the_success_and_staged_rows_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: TailraceError
) -> None:
    reports: dict[str, str] = {}
    tidied: list[str] = []
    handover = SimpleNamespace(done=reports.get, tidy=tidied.append)
    target = SimpleNamespace(place="new", handover=lambda: handover)
    monkeypatch.setattr(Places, "target", target)
    for done_before, expected in ((False, type(refusal)), (True, CutOver)):
        made, done = ready(tmp_path / str(done_before), monkeypatch, capture_check=refusal)
        log_in(tmp_path, made)
        database = TargetSpec.model_validate({"type": "mysql", "host": "new", "username": "tailrace"})
        made._places = dataclasses.replace(made._places, spec=made._places.spec.model_copy(update={"target": database}))
        if done_before:
            reports[origin().log_id] = "{}"
        else:
            JournalWriter.create(made._places.storage, origin(), Position(1), "n")
        with pytest.raises(expected):
            made.run()
        assert made._control.fault is not None and made._control.fault.name == expected.__name__
        assert "capture stop" in done
        assert tidied == ([] if expected is not CutOver else [origin().log_id]), "what a cutover that died has left"
        tidied.clear()


def test_what_capture_refuses_ends_the_run_while_spark_still_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM on its way is killed, and nobody waits for it."""
    made, done = ready(tmp_path, monkeypatch, capture_check=PositionLost("the slot is gone"))
    jvm: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> None:
        jvm.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        raise Retry(f"the JVM ended with {jvm[0].wait()}")

    monkeypatch.setattr(session, "launch", start)
    begun = time.monotonic()
    with pytest.raises(PositionLost):
        made.run()
    assert time.monotonic() - begun < 20
    assert jvm[0].returncode == -signal.SIGKILL
    assert "capture stop" in done and "spark stop" not in done


def test_commits_under_way_end_before_a_jvm_whose_session_still_starts_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those to Iceberg need no session."""
    made, done = ready(tmp_path, monkeypatch)
    jvm: list[subprocess.Popen[bytes]] = []
    starting = threading.Event()

    def launch_it(*arguments: object) -> SimpleNamespace:
        jvm.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return SimpleNamespace(process=jvm[0])

    def start_in(*arguments: object) -> None:
        starting.set()
        raise Retry(f"the JVM ended with {jvm[0].wait()}")

    alive: list[bool] = []

    def commit() -> None:
        alive.append(jvm[0].poll() is None)
        done.append("applier stop")

    monkeypatch.setattr(session, "launch", launch_it)
    monkeypatch.setattr(session, "start_in", start_in)
    monkeypatch.setattr(cast(Any, assembly.parts)().applier, "stop", commit)
    monkeypatch.setattr(made._ending, "wait", lambda seconds: starting.wait(20))
    assert made.run() == 0
    assert "applier stop" in done and alive == [True]
    assert jvm[0].returncode == -signal.SIGKILL


def test_a_service_works_while_spark_still_starts_and_ends_when_it_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    working = threading.Event()
    monkeypatch.setattr(made, "_start_side_loops", lambda *_: working.set())

    def start(*arguments: object) -> None:
        assert working.wait(20)
        raise InvalidManifest("Spark did not start", "Check spec.sparkConf.")

    monkeypatch.setattr(session, "launch", start)
    with pytest.raises(InvalidManifest):
        made.run()
    assert "stream start" in done and "capture stop" in done


def test_spark_that_does_not_start_ends_a_run_that_waits_for_its_change_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = ready(tmp_path, monkeypatch)
    log_in(tmp_path, made)
    monkeypatch.setattr(Driver, "_await_journal", AWAIT_JOURNAL)
    refused = InvalidManifest("Spark did not start", "Check spec.sparkConf.")

    def start(*arguments: object) -> None:
        raise refused

    monkeypatch.setattr(session, "launch", start)
    with pytest.raises(InvalidManifest):
        made.run()


@pytest.mark.parametrize("once", [False, True])
def test_a_signal_ends_a_run_cleanly_but_once_is_not_complete_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, once: bool
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=once))
    monkeypatch.setattr(driver, "bound", lambda source, journal: source)
    monkeypatch.setattr(driver, "position_at_start", lambda *arguments: Position(1))
    monkeypatch.setattr(made._ending, "wait", lambda seconds: True)
    assert made.run() == (1 if once else 0)
    assert "applier stop" in done and "capture stop" in done
    assert ("stopped before everything" in caplog.text) == once


def test_a_signal_while_spark_starts_ends_the_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made, done = ready(tmp_path, monkeypatch)
    jvm: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> None:
        jvm.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        made._ending.on_signal(15, None)
        raise Retry(f"the JVM ended with {jvm[0].wait()}")

    monkeypatch.setattr(session, "launch", start)
    assert made.run() == 0
    assert "Spark is starting" in caplog.text, "it takes a while: a sign of life"
    assert jvm[0].returncode == -signal.SIGKILL
    assert "capture stop" in done


class Lineage:
    """Remembers what it is told of the run's end."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.status = LineageStatus()

    def start(self) -> None:
        self.told.append("start")

    def step(self, *_: object) -> None: ...

    def end(self, kind: str, fault: Fault | None, *, in_haste: bool) -> None:
        assert not in_haste
        self.told.append(f"{kind} {fault.name if fault else ''}")


@pytest.mark.parametrize(
    ("where", "error", "end"),
    [
        ("", None, "ABORT "),
        ("capture_check", PositionLost("the slot is gone"), "ABORT PositionLost"),
        ("view_show", OSError("no terminal"), "ABORT InternalError"),
    ],
)
def test_lineage_hears_how_a_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception | None, end: str
) -> None:
    made, done = ready(tmp_path, monkeypatch, **({} if error is None else {where: error}))
    lineage = made._lineage = made._control.lineage = cast(Any, Lineage())
    monkeypatch.setattr(made._ending, "wait", lambda seconds: error is None)
    with nullcontext() if error is None else pytest.raises(type(error)):
        made.run()
    assert lineage.told == ["start", end] and "capture stop" in done


def test_lineage_that_breaks_neither_ends_a_run_nor_keeps_capture_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Lineage):
        @override
        def step(self, *_: object) -> None:
            raise RuntimeError("dictionary changed size during iteration")

        @override
        def end(self, *_: object, **__: object) -> None:
            raise RuntimeError("dictionary changed size during iteration")

    made, done = ready(tmp_path, monkeypatch)
    made._lineage = made._control.lineage = cast(Any, Broken())
    monkeypatch.setattr(made._ending, "wait", lambda seconds: True)
    assert made.run() == 0
    assert "capture stop" in done and "server close" in done


def test_a_lineage_configuration_that_cannot_be_used_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    places: dict[str, Any] = {"storage": {"location": f"file://{tmp_path}/log"}}
    places |= {"target": {"type": "delta", "location": f"file://{tmp_path}/lake"}}
    asked = {"namespace": "prod", "configFile": f"{tmp_path}/none.yml"}
    document = parse(json.dumps(replicator(**places | {"lineage": asked})), "m")
    with pytest.raises(InvalidManifest, match=r"none\.yml cannot be read"):
        driver.run(DriverSettings(document.replicator(), (), RunFolder(tmp_path / "run")))
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_that_is_gone_does_not_keep_capture_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = OSError("input/output error")
    made, done = ready(tmp_path, monkeypatch, view_show=gone, view_show_last=gone, view_close=gone)
    with pytest.raises(OSError, match="input/output"):
        made.run()
    assert "capture stop" in done and "server close" in done


def test_a_second_signal_waits_for_no_commit_but_ends_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = ready(tmp_path, monkeypatch)

    def twice(seconds: float) -> bool:
        made._ending.on_signal(2, None)
        made._ending.on_signal(2, None)
        raise AssertionError("the second one interrupts")

    monkeypatch.setattr(made._ending, "wait", twice)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert "applier stop" not in done and "spark stop" not in done
    assert "capture stop" in done
