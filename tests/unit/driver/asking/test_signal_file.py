"""The file of signals: each line is carried out once, also when the process dies in between."""

import json
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from support.states import keyed, log_state, snapshot, table_log, with_snapshots
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.snapshots import PlannedRewind, SnapshotEnded, SnapshotPlanned, SnapshotSuspended
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.signal_acts import SignalNotices
from tailrace.driver.asking.signal_file import SignalFile
from tailrace.errors import Retry


class Died(BaseException):
    """Stands for the end of the process."""


class Log:
    """Journal and capture: what is appended is in the state at once."""

    def __init__(self) -> None:
        self.state = log_state(*(table_log(keyed(i)) for i in (7, 8)))
        self.failures: list[BaseException] = []
        """The next appends end with these: before they are recorded, or, `Died`, behind."""

    def refresh(self) -> LogState:
        return self.state

    def append(self, events: list[Any]) -> int:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Retry):
            raise failure
        shots = dict(self.state.snapshots)
        for event in events:
            match event:
                case SnapshotPlanned():
                    shots[event.snapshot_id] = snapshot(event, 10)
                case SnapshotEnded():
                    shots[event.snapshot_id] = shots[event.snapshot_id].model_copy(update={"ended": event})
                case SnapshotSuspended():
                    update = {"suspended": event.suspended}
                    shots[event.snapshot_id] = shots[event.snapshot_id].model_copy(update=update)
                case _:
                    raise AssertionError(event)
        self.state = with_snapshots(self.state, shots)
        if failure is not None:
            raise failure
        return 10

    @property
    def plans(self) -> list[SnapshotPlanned]:
        return [s.plan for s in self.state.snapshots.values()]


class Life:
    """One life of the process over the same folder and log."""

    tokens = count()

    def __init__(self, path: Path, journal: Log) -> None:
        self.clock = 0.0
        self.journal = journal
        self.notices = SignalNotices()
        clock, token = (lambda: self.clock), (lambda: f"t{next(self.tokens)}")
        self.file = SignalFile(path, "postgres", self.notices, clock, token)
        self.control = DriverControl("shop")
        self.control.journal, self.control.client = cast(SharedJournal, journal), cast(CaptureClient, journal)

    def turn(self, times: int = 2) -> None:
        for _ in range(times):
            self.clock += 10
            self.notices.look(self.journal.state)
            self.file.step(self.control)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file-signals.txt"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "tailrace.driver.asking"):
        yield caplog


def line(kind: str, name: str = "ad-hoc", data: dict[str, Any] | None = None) -> str:
    return json.dumps({"id": name, "type": kind, "data": data}) + "\n"


def execute(*tables: str, name: str = "ad-hoc", where: dict[str, str] | None = None) -> str:
    conditions = {} if where is None else {"additional-conditions": [where]}
    return line("execute-snapshot", name, {"data-collections": list(tables), **conditions})


def notifications(told: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    lines = [r.getMessage() for r in told.records if r.getMessage().startswith("notification ")]
    found = [json.loads(text.removeprefix("notification ")) for text in lines]
    return [(n["id"], n["type"], n["additional_data"]["data_collections"]) for n in found]


def test_a_line_becomes_a_snapshot_of_each_table_and_is_taken_away(path: Path, told: pytest.LogCaptureFixture) -> None:
    journal = Log()
    life = Life(path, journal)
    life.turn()  # the file may be missing
    where = {"data-collection": "s.t8", "filter": "id > 5"}
    path.write_text(execute("s\\.t.*", where=where))
    life.turn()
    assert [(p.request, p.tables, p.where) for p in journal.plans] == [
        ("ad-hoc", (7,), None),
        ("ad-hoc", (8,), "id > 5"),
    ]
    assert list(path.parent.iterdir()) == []
    assert notifications(told) == [("ad-hoc", "STARTED", "s.t7"), ("ad-hoc", "STARTED", "s.t8")]
    for plan in journal.plans:
        journal.append([SnapshotEnded(snapshot_id=plan.snapshot_id, outcome="completed", message="")])
    life.turn(3)
    assert notifications(told)[2:] == [("ad-hoc", "COMPLETED", "s.t7"), ("ad-hoc", "COMPLETED", "s.t8")]


def test_the_same_signal_written_again_is_carried_out_again(path: Path) -> None:
    journal = Log()
    life = Life(path, journal)
    for _ in range(2):
        path.write_text(execute("s.t7") * 2)
        life.turn()
    assert [p.tables for p in journal.plans] == [(7,)] * 4


def test_a_process_that_dies_behind_the_plan_does_not_read_twice(path: Path) -> None:
    journal = Log()
    path.write_text(execute("s.t7") + execute("s.t8", name="second"))
    life = Life(path, journal)
    journal.failures = [Died()]
    with pytest.raises(Died):
        life.turn()
    assert [p.tables for p in journal.plans] == [(7,)]
    path.write_text(execute("s.t7", name="third"))  # written while no process ran
    Life(path, journal).turn(4)
    assert [p.request for p in journal.plans] == ["ad-hoc", "second", "third"]
    assert list(path.parent.iterdir()) == []


def test_a_process_that_dies_between_taking_the_file_and_the_plan_loses_no_signal(path: Path) -> None:
    journal = Log()
    path.write_text(execute("s.t7"))
    Life(path, journal).turn(1)
    assert not path.exists() and not journal.plans
    Life(path, journal).turn()
    assert [p.tables for p in journal.plans] == [(7,)]


def test_signals_wait_while_capture_is_away(path: Path, told: pytest.LogCaptureFixture) -> None:
    journal = Log()
    path.write_text(execute("s.t7", "s.t8"))
    journal.failures = [Retry("capture is away"), Retry("capture is away")]
    life = Life(path, journal)
    life.turn(3)
    assert not journal.plans
    assert told.text.count("capture is away") == 1
    life.turn()
    assert [p.tables for p in journal.plans] == [(7,), (8,)]
    assert notifications(told) == [("ad-hoc", "STARTED", "s.t7"), ("ad-hoc", "STARTED", "s.t8")]


def test_snapshots_are_paused_resumed_and_stopped_table_by_table(path: Path, told: pytest.LogCaptureFixture) -> None:
    journal = Log()
    life = Life(path, journal)
    path.write_text(execute("s.t7", "s.t8", name="both") + execute("s.t7") + line("pause-snapshot", "p"))
    life.turn()
    assert [s.suspended for s in journal.state.snapshots.values()] == [True] * 3
    path.write_text(line("resume-snapshot", "r") + line("stop-snapshot", "x", {"data-collections": ["s.t7"]}))
    life.turn()
    assert [s.suspended for s in journal.state.snapshots.values()] == [False] * 3
    assert [s.ended and s.ended.outcome for s in journal.state.snapshots.values()] == ["stopped", None, "stopped"]
    path.write_text(line("stop-snapshot", "y"))
    life.turn(3)
    assert [s.ended and s.ended.outcome for s in journal.state.snapshots.values()] == ["stopped"] * 3
    assert notifications(told)[3:] == [
        ("both", "PAUSED", "s.t7"), ("both", "PAUSED", "s.t8"), ("ad-hoc", "PAUSED", "s.t7"),
        ("both", "RESUMED", "s.t7"), ("both", "RESUMED", "s.t8"), ("ad-hoc", "RESUMED", "s.t7"),
        ("both", "ABORTED", "s.t7"), ("ad-hoc", "ABORTED", "s.t7"), ("both", "ABORTED", "s.t8"),
    ]  # fmt: skip


def test_only_requested_snapshots_are_paused_and_stopped(path: Path, told: pytest.LogCaptureFixture) -> None:
    journal = Log()
    for reason in ("initial", "schema", "repair", "request"):
        journal.append([SnapshotPlanned(snapshot_id=reason, reason=reason, tables=(7,))])
    journal.append([SnapshotPlanned(snapshot_id="verify", tables=(7,), verify=True)])
    back = PlannedRewind(cut="c", record=RecordNumber(1), asked="cut c", tables=(7,))
    journal.append([SnapshotPlanned(snapshot_id="rewind", tables=(), rewind=back)])
    path.write_text(line("pause-snapshot") + line("stop-snapshot"))
    Life(path, journal).turn(2)
    assert [i for i, s in journal.state.snapshots.items() if s.suspended] == ["request"]
    assert [i for i, s in journal.state.snapshots.items() if s.ended is not None] == ["request"]
    assert notifications(told) == [("request", "PAUSED", "s.t7")], "no signal has asked for it"


def test_what_cannot_be_carried_out_is_named_and_the_next_line_is(path: Path, told: pytest.LogCaptureFixture) -> None:
    journal = Log()
    bad = [
        "{", "\xff".encode("latin-1").decode("latin-1"), line("schema-changes"), line("custom"), line("log"),
        execute("s.t9"), execute("s.t7", where={"data-collection": "s.t7", "filter": "a ="}),
    ]  # fmt: skip
    text = "\n".join(part.rstrip("\n") for part in bad).encode() + b"\n\xff\xfe\n"
    path.write_bytes(
        text + (line("snapshot-window-open") + line("log", data={"message": "at {}"}) + execute("s.t8")).encode()
    )
    Life(path, journal).turn()
    assert [p.tables for p in journal.plans] == [(8,)]
    warned = [r.getMessage() for r in told.records if r.levelno == logging.WARNING]
    expected = [
        "line 1 ", "line 2 ", "'schema-changes' is not supported", "'custom' is not supported", "no message",
        "no captured table matches s.t9 (captured: s.t7, s.t8)", "the filter is no condition", "not UTF-8",
    ]  # fmt: skip
    assert len(warned) == len(expected)
    for said, part in zip(warned, expected, strict=True):
        assert part in said and "Fix: " in said
    assert "signal 'ad-hoc': at 0" in told.text


def test_a_file_that_cannot_be_taken_stops_nothing(path: Path, told: pytest.LogCaptureFixture) -> None:
    path.write_text(execute("s.t7"))
    life = Life(path, Log())
    path.with_name(f"{path.name}.taken-0").mkdir()
    life.turn(3)
    assert told.text.count("wait: ") == 1
