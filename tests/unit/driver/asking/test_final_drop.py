"""What a driver does before it goes for good: on request, at the end of its namespace, and otherwise nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.resources import replicator
from tailrace.contract import faults
from tailrace.contract.driver import MAX_MESSAGE, DropReport, LastWords
from tailrace.contract.resources import DeletionPolicy, Replicator
from tailrace.contract.status import Fault
from tailrace.driver.asking import final_drop, namespace
from tailrace.driver.asking.final_drop import FinalDrop
from tailrace.driver.process.run_dir import RunFolder
from tailrace.driver.process.shutdown import ShutdownRequest
from tailrace.errors import Fenced, Retry
from tailrace.removal import drop
from tailrace.sources.api import RemovalStep

SLOT = RemovalStep("replication slot s", "dropped")


class Source:
    """Stands for `drop.leave`: fails so often, and remembers how it was called."""

    def __init__(self, faults: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self.faults, self.then, self.asked = faults, then, list[DeletionPolicy]()
        self.hurried = False

    def __call__(
        self, replicator: Replicator, secrets: Path | None, run_dir: Path, policy: DeletionPolicy, *, hurried: bool
    ) -> Iterator[RemovalStep]:
        self.asked.append(policy)
        self.hurried = hurried
        if len(self.asked) <= self.faults:
            self.then()
            raise Retry("the source is away")
        yield SLOT


def make(tmp_path: Path, ending: ShutdownRequest, *, ends: bool = False, policy: str = "Retain") -> FinalDrop:
    now = Replicator.model_validate(replicator(deletionPolicy=policy))
    started = Replicator.model_validate(replicator(deletionPolicy="Delete"))
    return FinalDrop(started, None, RunFolder(tmp_path), ending, ends=lambda: ends, reread=lambda: now)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()
    monkeypatch.setattr(drop, "leave", made)
    for name in ("PAUSE_SECONDS", "HURRIED_PAUSE_SECONDS", "LINGER_STEP_SECONDS"):
        monkeypatch.setattr(final_drop, name, 0.01)
    return made


def test_an_ordinary_end_drops_nothing(source: Source, tmp_path: Path) -> None:
    """A restart, a suspension, a drained node: the Replicator goes on."""
    ending = ShutdownRequest()
    ending.on_signal(15, None)
    make(tmp_path, ending).carry_out()
    assert source.asked == []


def test_what_was_asked_for_is_done_answered_and_the_driver_stays_until_it_is_ended(
    source: Source, tmp_path: Path
) -> None:
    ending = ShutdownRequest()
    made = make(tmp_path, ending)
    assert made.ask("Delete").done is False
    assert ending.is_set(), "the driver ends its work"
    thread = threading.Thread(target=made.carry_out)
    thread.start()
    while not (answer := made.ask("Retain")).done:
        pass
    assert answer.report is not None and answer.report.dropped == ("replication slot s",)
    assert source.asked == ["Delete"], "the first order counts, and it is carried out once"
    assert thread.is_alive()
    ending.on_signal(15, None)
    thread.join(5)
    assert not thread.is_alive()


def test_a_source_that_is_away_is_tried_again_and_told(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, said = ShutdownRequest(), list[str]()
    made = make(tmp_path, ending)
    source.faults, source.then = 2, lambda: said.append(made.ask("Retain").message)
    made.ask("Retain")
    words = tmp_path / "words"
    monkeypatch.setenv("TAILRACE_TERMINATION_MESSAGE", str(words))
    threading.Timer(0.5, lambda: ending.on_signal(15, None)).start()
    made.carry_out()
    assert said == ["the driver finishes its work first", "Retry: the source is away"]
    found = LastWords.of_message(words.read_text())
    assert found is not None and found.drop is not None
    assert (found.drop.complete, found.drop.dropped, found.fault) == (True, ("replication slot s",), None)
    faults.leave_fault(Retry("the storage is away"), 7.0)
    after = LastWords.of_message(words.read_text())
    assert after is not None and after.fault is not None, "an error that came later takes nothing away"
    assert (after.drop, after.fault.message) == (found.drop, "the storage is away")


def test_whoever_ends_it_while_the_source_is_away_is_not_held_up(source: Source, tmp_path: Path) -> None:
    ending = ShutdownRequest()
    made = make(tmp_path, ending)
    source.faults, source.then = 99, lambda: ending.on_signal(15, None)
    made.ask("Retain")
    made.carry_out()
    assert made.ask("Retain").done is False


@pytest.mark.parametrize("policy", ["Retain", "Delete", "Orphan"])
def test_the_end_of_its_namespace_drops_without_being_asked_and_does_not_give_up(
    source: Source, tmp_path: Path, policy: str
) -> None:
    ending = ShutdownRequest()
    source.faults = 2
    made = make(tmp_path, ending, ends=True, policy=policy)
    assert not made.namespace_ends, "only a signal calls for the question"
    ending.on_signal(15, None)
    made.carry_out()
    assert source.asked == [policy] * 3 and source.hurried


@pytest.mark.parametrize(("started", "asked"), [("Delete", "Retain"), ("Orphan", "Orphan")])
def test_a_manifest_that_cannot_be_read_at_the_end_of_the_namespace_deletes_no_data(
    source: Source, tmp_path: Path, started: str, asked: str
) -> None:
    def unreadable() -> Replicator:
        raise Retry("no such file")

    ending, known = ShutdownRequest(), Replicator.model_validate(replicator(deletionPolicy=started))
    ending.on_signal(15, None)
    FinalDrop(known, None, RunFolder(tmp_path), ending, ends=lambda: True, reread=unreadable).carry_out()
    assert source.asked == [asked]


def test_a_container_that_starts_again_once_all_is_given_up_takes_nothing_back(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet starts it at once, and the Replicator may be gone by then: nobody would stop it."""
    monkeypatch.setenv("TAILRACE_TERMINATION_MESSAGE", str(tmp_path / "words"))
    ending = ShutdownRequest()
    made = make(tmp_path, ending)
    made.ask("Orphan")
    ending.on_signal(15, None)
    RunFolder(tmp_path).refuse_if_fenced()
    made.carry_out()
    with pytest.raises(Fenced, match="was deleted"):
        RunFolder(tmp_path).refuse_if_fenced()


def test_a_report_of_ten_thousand_tables_fits_a_termination_message() -> None:
    many = tuple(f"table s3://lake/{'x' * 60}/{n}" for n in range(10_000))
    report = DropReport(owner="o", complete=True, dropped=many, kept=("slot s: given",))
    for fault in (None, Fault(name="Retry", message="\N{SNOWMAN}" * 5000, fix='"' * 5000, where="storage")):
        words = LastWords(fault=fault, drop=report).to_message()
        assert len(words.encode()) <= MAX_MESSAGE
        read = LastWords.of_message(words)
        assert read is not None and read.drop is not None and read.drop.kept == report.kept
        assert len(read.drop.dropped) + read.drop.more == 10_000
        assert (read.fault is not None) == (fault is not None)
    assert LastWords.of_message("Traceback (most recent call last):") is None


def test_outside_a_cluster_and_when_nobody_answers_no_namespace_ends(tmp_path: Path) -> None:
    assert not namespace.namespace_ends({})
    (tmp_path / "token").write_text("t")
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1", "POD_NAMESPACE": "team"}
    assert not namespace.namespace_ends({**place, "TAILRACE_ACCOUNT_FOLDER": str(tmp_path)})
