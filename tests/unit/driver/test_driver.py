"""How the driver goes up and down around parts that do nothing, or fail."""

import dataclasses
import json
import logging
import math
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from typing_extensions import override

from support.apply_loop import table
from support.origins import origin
from support.resources import replicator
from support.waiting import until
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.protocol import StateAnswer
from tailrace.capture.renewal import Renewal
from tailrace.capture.server import CaptureServer
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.driver import SpecBody
from tailrace.contract.manifest import parse
from tailrace.contract.resources import SnapshotRequest, StorageLocation, TargetSpec
from tailrace.contract.status import Fault, LineageStatus, Status
from tailrace.driver import driver, launch
from tailrace.driver.asking import live_spec
from tailrace.driver.driver import Driver
from tailrace.driver.launch import DriverParts, DriverSettings
from tailrace.driver.process.journal_start import JournalStart
from tailrace.driver.process.run_dir import RunFolder
from tailrace.driver.telling import display
from tailrace.errors import CutOver, InvalidManifest, PositionLost, Retry, SourceRefused, StorageFull, TailraceError
from tailrace.places import Places
from tailrace.spark import executors_wanted, session
from tailrace.storage.store import Storage

AWAIT_JOURNAL = Driver._await_journal


class Fake:
    """Stands for every part; remembers what was done to it in `done`, and raises what it is told to."""

    def __init__(self, name: str, done: list[str], faults: dict[str, Exception]) -> None:
        self.name, self.done, self.faults = name, done, faults
        self.fault = self.pid = None
        self.state = LogState(number=RecordNumber(3))
        self.running, self.is_working, self.through, self.last_step_at = True, False, 3, 0.0
        self.runs: dict[Any, Any] = {}
        self.waiting_for = None
        self.pause = self.late = 0.0

    def _do(self, what: str) -> None:
        self.done.append(f"{self.name} {what}")
        if f"{self.name} {what}" in self.faults:
            raise self.faults[f"{self.name} {what}"]

    def stop(self) -> None:
        self._do("stop")

    def started(self, seconds: float = 0.0) -> None: ...
    def begin(self) -> None: ...
    def launch(self) -> None: ...
    def abandon(self, keep: int | None) -> None: ...
    def let_go(self, keep: int | None) -> None: ...

    def close(self) -> None:
        self._do("close")

    def start(self) -> None:
        self._do("start")

    def check(self) -> None:
        self._do("check")

    def show(self, status: Status | None = None, last: bool = False) -> None:
        self._do("show last" if last else "show")

    def step(self) -> None: ...
    def works(self, position: int) -> None: ...
    def offer(self, through: int) -> None: ...
    def due_in(self, number: int) -> float:
        return math.inf

    def notify(self, number: int, *, again: bool = False) -> None: ...
    def follow(self, interval: float | None) -> None:
        self._do(f"follow {interval}")

    waits_for: str | None = None
    late = 0.0

    def hold(self) -> bool:
        self._do("hold")
        return True

    def release(self) -> None:
        self._do("release")

    def start_again(self) -> None:
        self._do("start again")

    def refresh(self) -> LogState:
        return self.state


def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **faults: Exception) -> tuple[Driver, list[str]]:
    """A driver over fakes; `capture_check` names what `capture check` raises."""
    done: list[str] = []
    told = {name.replace("_", " ", 1).replace("_", " "): fault for name, fault in faults.items()}

    def fake(name: str) -> Callable[..., Any]:
        made = Fake(name, done, told)
        return lambda *arguments, **more: made

    monkeypatch.setattr(driver, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(launch, "server", fake("server"))
    monkeypatch.setattr(launch, "capture_process", fake("capture"))
    monkeypatch.setattr(display, "choose", fake("view"))
    monkeypatch.setattr(session, "launch", lambda *arguments: SimpleNamespace(process=None))
    monkeypatch.setattr(session, "start_in", fake("spark"))
    monkeypatch.setattr(session, "check", lambda spark, log_file: None)
    monkeypatch.setattr(session, "end", lambda process: None)
    monkeypatch.setattr(executors_wanted, "of", lambda spark: lambda: None)
    monkeypatch.setattr(session, "stop", lambda spark: spark.stop())
    names = ("applier", "runner", "stream", "journal", "dropped", "cuts", "rewinds")
    parts = DriverParts(*(cast(Any, fake(name)()) for name in names))
    monkeypatch.setattr(launch, "parts", lambda *arguments, **more: parts)

    def no_wait(made: Driver) -> Generator[None, None, SharedJournal]:
        yield
        return parts.journal

    monkeypatch.setattr(Driver, "_await_journal", no_wait)
    cast(Any, parts.journal).storage = Storage.open(
        StorageLocation.model_validate({"location": f"file://{tmp_path}/log"})
    )
    folder = RunFolder(tmp_path)
    folder.take()
    document = parse(json.dumps(replicator()), "m")
    made = Driver(DriverSettings(document.replicator(), (), folder, secrets=tmp_path))
    made._capture = fake("capture")()
    monkeypatch.setattr(made._ending, "listen", lambda: None)  # the test run's own handlers stay
    return made, done


def awaited(made: Driver, view: Fake) -> SharedJournal | None:
    """The change log that the driver's start waits for; None: something ended the wait."""
    made._capture, made._spark = (cast(Any, Fake(name, [], {})) for name in ("capture", "spark"))
    made._view = cast(Any, view)
    state = AWAIT_JOURNAL(made)
    while not made._ending.is_set():
        try:
            next(state)
        except StopIteration as ended:
            return cast(SharedJournal, ended.value)
    return None


def log_in(folder: Path, made: Driver) -> None:
    """The change log is there."""
    storage = StorageLocation.model_validate({"location": f"file://{folder}/log"})
    spec = made._spec.model_copy(update={"storage": storage})
    made._places = dataclasses.replace(made._places, spec=spec)


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
    monkeypatch.setattr(cast(Any, launch.parts)().applier, "stop", commit)
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


def test_the_main_loop_turns_while_the_source_hangs_over_the_keys_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    spec = {"replicator": made._name, "tables": ["s.t7"], "keys": [["1"]]}
    head = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": {"name": "again"}}
    request = SnapshotRequest.model_validate(head | {"spec": spec})
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, requests=(request,)))
    parts = cast(Any, launch.parts)()
    parts.journal.state = LogState(number=RecordNumber(3), tables={7: table(7)})
    hangs, asked = threading.Event(), threading.Event()

    def canonical_keys(*_: object) -> tuple[tuple[str], ...]:
        asked.set()
        assert hangs.wait(60)
        return (("1",),)

    def watch() -> None:
        assert asked.wait(20)
        begun = done.count("capture check")
        try:
            until(lambda: done.count("capture check") > begun + 10, "turns", 20, pause=0.01)
        finally:
            made._ending.set()
            hangs.set()

    parts.runner.canonical_keys = canonical_keys
    watching = threading.Thread(target=watch)
    watching.start()
    assert made.run() == 0
    watching.join()


@pytest.mark.parametrize(("once", "late", "wished"), [(False, 1.0, 0.48), (False, 0.0, 0.24), (True, 1.0, 0.0)])
def test_capture_is_told_how_long_records_may_take_while_tables_are_late(
    once: bool, late: float, wished: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = ready(tmp_path, monkeypatch)
    spec = made._spec.model_copy(update={"apply": made._spec.apply.model_copy(update={"freshness": "1s"})})
    monkeypatch.setattr(Driver, "_spec", property(lambda _: spec))
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=once))
    heard = list[float]()

    def await_record(client: object, after: int, patience: float, record_seconds: float) -> bool:
        heard.append(record_seconds)
        return True

    monkeypatch.setattr("tailrace.driver.process.tail.await_record", await_record)
    parts = cast(Any, launch.parts)()
    parts.applier.late = late
    made._tail(parts)
    assert heard == [pytest.approx(wished)]
    made._folder.release()


def test_the_main_loop_turns_while_the_source_hangs_over_the_position_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=True))
    monkeypatch.setattr(driver, "bound", lambda source, journal: source)
    hangs, calls = threading.Event(), list[int]()

    def position_now(*_: object) -> Position:
        calls.append(done.count("capture check"))
        if len(calls) == 1:
            raise Retry("the source restarts")
        assert hangs.wait(60)
        return Position(1)

    monkeypatch.setattr(driver, "position_at_start", lambda *_: Position(1))
    monkeypatch.setattr(made, "_position_now", position_now)

    def end() -> None:
        try:
            until(lambda: len(calls) == 2, "asked again", 20, pause=0.01)
            until(lambda: done.count("capture check") > calls[1] + 10, "turns", 20, pause=0.01)
        finally:
            made._ending.on_signal(15, None)

    ending = threading.Thread(target=end)
    ending.start()
    assert made.run() == 1
    ending.join()
    hangs.set()
    assert len(calls) == 2, "one question at a time, asked again after a refusal"
    assert done.count("capture check") - calls[1] > 10


@pytest.mark.parametrize("hanging", ["source", "storage", "target"])
def test_a_signal_ends_a_start_whose_source_storage_or_target_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    hangs, asked = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> bool:
        asked.set()
        return hangs.wait(60)

    def end() -> None:
        until(lambda: asked.is_set() and "view show" in done, "shown while it hangs", 20, pause=0.01)
        made._ending.on_signal(15, None)

    if hanging == "source":
        monkeypatch.setattr(made, "_settings", dataclasses.replace(made._settings, once=True))
        monkeypatch.setattr(driver, "position_at_start", hang)
    elif hanging == "target":
        monkeypatch.setattr(launch, "parts", hang)
    else:
        log_in(tmp_path, made)
        monkeypatch.setattr(Driver, "_await_journal", AWAIT_JOURNAL)
        monkeypatch.setattr(JournalStart, "look", hang)
    threading.Thread(target=end).start()
    begun = time.monotonic()
    assert made.run() == (1 if hanging == "source" else 0)
    assert time.monotonic() - begun < 20
    hangs.set()
    assert done.count("view show") >= 1
    assert ("spark stop" in done) == (hanging != "source")


def test_a_start_that_waits_shows_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = ready(tmp_path, monkeypatch)
    monkeypatch.setattr(Driver, "_await_journal", AWAIT_JOURNAL)
    log_in(tmp_path, made)
    shown: list[str] = []
    view = Fake("view", done, {})
    monkeypatch.setattr(view, "show", lambda status, last=False: shown.append(status.message))
    monkeypatch.setattr(display, "choose", lambda *arguments: view)
    answer = StateAnswer(
        record=RecordNumber(-1), epoch=-1, position=Position(0), waiting_for="the slot waits for transaction 7"
    )
    monkeypatch.setattr(made._control, "watch", cast(Any, SimpleNamespace(state=lambda: answer)))
    threading.Timer(0.2, made._ending.set).start()
    assert made.run() == 0
    assert set(shown) == {"the slot waits for transaction 7"}


def test_a_start_waits_for_capture_to_begin_the_stream_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the journal's origin may name another server, and what is read from this one would be refused."""
    made, done = ready(tmp_path, monkeypatch)
    log_in(tmp_path, made)
    storage = made._places.storage
    JournalWriter.create(storage, origin(), Position(1), "capture")
    Renewal(id="again", request="again").write(storage)
    board = Board()
    server = CaptureServer(made._folder.socket, Inbox(), board)
    server.start()
    begun = StateAnswer(record=RecordNumber(0), epoch=1, position=Position(1))

    def begin() -> None:
        done.append("begun")
        board.show(begun, lambda: RecordNumber(0))

    threading.Timer(0.1, begin).start()
    try:
        found = awaited(made, Fake("view", done, {}))
    finally:
        assert made._control.watch is not None
        made._control.watch.close()
        server.stop()
        made._folder.release()
    assert found is not None and "begun" in done


@pytest.mark.parametrize("written", [0, 40])
def test_a_start_that_waits_asks_the_storage_for_the_next_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """However long it waits, and however long the journal is."""
    made, done = ready(tmp_path, monkeypatch)
    log_in(tmp_path, made)
    asked: list[str] = []

    class Counting(Storage):
        @override
        @contextmanager
        def errors(self, path: str, writing: bool = False) -> Iterator[None]:
            asked.append(path)
            with super().errors(path, writing):
                yield

    storage = made._places.storage
    if written:
        journal = JournalWriter.create(storage, origin(), Position(1), "capture")
        for number in range(written):
            journal.append(Position(2 + number))
        Renewal(id="again", request="again").write(storage)
    monkeypatch.setattr(made, "_places", SimpleNamespace(storage=Counting(storage.access)))
    monkeypatch.setattr(driver, "STEP_SECONDS", 0.0)
    by_turn: list[int] = []

    def show() -> None:
        by_turn.append(len(asked))
        if len(by_turn) == 20:
            made._ending.set()

    view = Fake("view", done, {})
    monkeypatch.setattr(view, "show", show)
    assert awaited(made, view) is None
    made._folder.release()
    assert by_turn[-1] - by_turn[0] == 19, asked[by_turn[0] :][:10]


def takes(made: Driver, parts: DriverParts, **spec: Any) -> None:
    body = SpecBody(generation=4, spec=parse(json.dumps(replicator(**spec)), "m").replicator().spec)
    made._live.accepts = True
    with pytest.raises(Retry):
        made._live.offer(body, patience=0)
    made._take_spec(parts)


def test_capture_starts_again_only_for_what_it_reads_and_between_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    parts = launch.parts(cast(Any, None), cast(Any, None), cast(Any, None), cast(Any, None),
                         spark=cast(Any, None), journal=cast(Any, None), pace=cast(Any, None))  # fmt: skip
    takes(made, parts, snapshot={"parallelism": 5})
    assert done == ["runner release", "stream follow True"]
    assert made._spec.snapshot.parallelism == 5
    done.clear()
    takes(made, parts, apply={"freshness": "1s"})
    assert done == ["capture stop", "capture start again", "runner release", "stream follow True"]
    done.clear()
    takes(made, parts, apply={"suspend": True}, tables={"include": ["a.*"]})
    assert done == ["runner hold", "capture stop", "capture start again", "runner release", "stream follow False"]
    assert (made._control.suspended, "apply" in made._control.loops) == (True, False)
    assert json.loads((tmp_path / "replicator.json").read_text())["spec"]["tables"] == {"include": ["a.*"]}
    done.clear()
    monkeypatch.setattr(parts.runner, "hold", lambda: False)
    takes(made, parts, tables={"include": ["shop.*"]})
    assert (done, made._spec.tables.include) == ([], ("a.*",)), "a chunk is being read"
    monkeypatch.setattr(parts.runner, "hold", lambda: True)
    made._take_spec(parts)
    assert done == ["capture stop", "capture start again", "runner release", "stream follow True"]
    assert (made._live.generation, "apply" in made._control.loops) == (4, True)
    made._folder.release()


def test_a_spec_that_cannot_be_kept_is_refused_and_the_old_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    parts = launch.parts(cast(Any, None), cast(Any, None), cast(Any, None), cast(Any, None),
                         spark=cast(Any, None), journal=cast(Any, None), pace=cast(Any, None))  # fmt: skip

    def full(folder: Path, kept: object) -> bool:
        raise StorageFull("no room")

    monkeypatch.setattr(live_spec, "keep", full)
    takes(made, parts, tables={"include": ["shop.*"]})
    assert done == ["runner hold", "capture stop", "capture start again", "runner release"]
    assert (made._spec.tables.include, made._live.next()) == (("public.*",), None)
    made._folder.release()
