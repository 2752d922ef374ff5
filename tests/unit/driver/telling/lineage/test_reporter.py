"""The events of a Replicator, from its change log to a receiver by HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support import lineage
from support.lineage import Receiver
from support.scripted import V
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from support.states import keyed, log_state, logged, table_log
from support.waiting import until
from tailrace.apply.progress import Progress
from tailrace.changelog.records.tables import TableStopped
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import LogState
from tailrace.driver.telling import metrics
from tailrace.driver.telling.lineage import reporter, runs
from tailrace.driver.telling.lineage.reporter import LineageReporter, open_lineage
from tailrace.places import Places

ONE, TWO = "shop.main.one", "shop.main.two"


class Told(Copy):
    """A copy of two tables whose driver tells of them."""

    def __init__(self, folder: Path, url: str, **spec: Any) -> None:
        super().__init__(filled("one", "two"), folder)
        transport = {"retry": {"total": 0}, "timeout": 5}
        path = lineage.configuration(folder, url, **transport)
        self.document["spec"] |= {"lineage": {"namespace": "prod", "configFile": str(path)}, **spec}
        self.lineage: LineageReporter | None = None

    @override
    def start(self) -> None:
        super().start()
        self.lineage = open_lineage(self.replicator, None, self.folder)
        assert self.lineage is not None
        self.lineage.start()

    @override
    def turn(self) -> LogState:
        state = super().turn()
        if self.lineage is not None:
            self.lineage.step(state, self.driver.progress, Places(self.replicator.spec).target)
        return state

    @override
    def stop(self) -> None:
        super().stop()
        if self.lineage is not None:
            self.lineage.end("ABORT")
            self.lineage = None

    def kill(self) -> None:
        """Nothing is said any more."""
        assert self.lineage is not None
        self.lineage._sender.close(30)
        self.lineage = None
        super().stop()


@pytest.fixture
def catalog() -> Iterator[Receiver]:
    with lineage.receiver() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(runs, "LONGEST_PAUSE", 0.0)


def test_a_run_from_its_start_to_its_end(tmp_path: Path, catalog: Receiver) -> None:
    copy = Told(tmp_path, catalog.url)
    with copy.running():
        copy.level()
        copy.database.commit(Change("I", 1, 100, "x"), Change("U", 1, 1, "y"), Change("D", 2, 3))
        copy.level()
        copy.ask("main.one", resync=True)
        copy.level()
        copy.turn()
    lineage.check_all(catalog.events)
    for job in (ONE, TWO, "shop"):
        assert catalog.kinds(job) == (["START", "ABORT"] if job == "shop" else ["START", "RUNNING", "ABORT"])
    (last,) = catalog.of(ONE)[-1]["outputs"]
    written = last["outputFacets"]["outputStatistics"]
    files = [path.stat().st_size for path in (tmp_path / "lake").rglob("*one*/**/*.parquet")]
    assert (written["rowCount"], written["fileCount"], written["size"]) == (20 + 2 + 21, len(files), sum(files))
    assert [field["name"] for field in last["facets"]["schema"]["fields"]] == ["id", "v"]
    changes = [e["outputs"][0]["facets"].get("lifecycleStateChange", {}) for e in catalog.of(ONE)]
    assert [one["lifecycleStateChange"] for one in changes if one] == ["OVERWRITE"]
    assert not (tmp_path / reporter.FILE).exists()


def test_another_process_ends_the_runs_of_one_that_was_killed(tmp_path: Path, catalog: Receiver) -> None:
    copy = Told(tmp_path, catalog.url)
    copy.start()
    copy.level()
    copy.kill()
    assert catalog.kinds(ONE) == ["START", "RUNNING"] and (tmp_path / reporter.FILE).exists()
    with copy.running():
        copy.equal()
        copy.turn()
    lineage.check_all(catalog.events)
    assert catalog.kinds(ONE) == ["START", "RUNNING", "ABORT", "START", "RUNNING", "ABORT"]
    assert len({event["run"]["runId"] for event in catalog.of(ONE)}) == 2
    assert catalog.kinds("shop") == ["START", "ABORT", "START", "ABORT"]


def test_runs_whose_end_no_receiver_got_are_ended_by_a_later_process(tmp_path: Path, catalog: Receiver) -> None:
    copy = Told(tmp_path, catalog.url)
    copy.start()
    copy.level()
    copy.kill()
    reachable = copy.document["spec"]["lineage"]["configFile"]
    (tmp_path / "away").mkdir()
    away = lineage.configuration(tmp_path / "away", "http://127.0.0.1:1", retry={"total": 0}, timeout=5)
    copy.document["spec"]["lineage"]["configFile"] = str(away)
    for _ in range(2):  # the ends of the killed one's runs, and its own, arrive nowhere
        told = open_lineage(copy.replicator, None, tmp_path)
        assert told is not None
        told.start()
        told.end("ABORT", in_haste=True)
    assert catalog.kinds(ONE) == catalog.kinds(TWO) == ["START", "RUNNING"]
    copy.document["spec"]["lineage"]["configFile"] = reachable
    told = open_lineage(copy.replicator, None, tmp_path)
    assert told is not None
    told.start()
    told.end("ABORT")
    for event in catalog.events:  # of the replicator's runs in between nobody has heard a START
        lineage.check(event)
    assert catalog.kinds(ONE) == catalog.kinds(TWO) == ["START", "RUNNING", "ABORT"]
    assert len({event["run"]["runId"] for event in catalog.of(ONE)}) == 1
    assert catalog.kinds("shop") == ["START", "ABORT", "ABORT", "ABORT", "START", "ABORT"]
    assert not (tmp_path / reporter.FILE).exists()


def test_a_table_that_is_stopped_has_failed_and_one_that_is_no_longer_captured_is_complete(
    tmp_path: Path, catalog: Receiver
) -> None:
    copy = Told(tmp_path, catalog.url)
    target, progress = Places(copy.replicator.spec).target, Progress()
    told = open_lineage(copy.replicator, None, tmp_path)
    assert told is not None
    told.start()
    one, two = (table_log(keyed(number, name, "main")) for number, name in ((1, "one"), (2, "two")))
    wider = keyed(1, "one", "main").model_copy(update={"version": 2, "columns": (*one.schema.columns, V)})
    altered = one.model_copy(update={"schemas": (*one.schemas, logged(wider, 5))})
    stop = TableStopped(table_id=2, seq=Seq(1), error="NoKey", message="no key", fix="Add one.", where="source")
    for state in (
        log_state(one, two),
        log_state(altered, two.model_copy(update={"stopped": stop})),
        log_state(altered.model_copy(update={"removed": True})),
    ):
        told.step(state, progress, target)
    told.end("ABORT")
    lineage.check_all(catalog.events)
    assert catalog.kinds(ONE) == ["START", "RUNNING", "COMPLETE"] and catalog.kinds(TWO) == ["START", "FAIL"]
    (change,) = (event["outputs"][0]["facets"].get("lifecycleStateChange") for event in catalog.of(ONE)[1:2])
    assert change["lifecycleStateChange"] == "ALTER"
    assert catalog.of(TWO)[-1]["run"]["facets"]["errorMessage"]["message"] == "NoKey: no key. Fix: Add one."


def await_runs(catalog: Receiver, complete: int) -> None:
    until(lambda: catalog.kinds(ONE).count("COMPLETE") == complete, "the runs", 20)


def test_columns_that_a_history_adds_are_in_the_target_and_come_from_none(tmp_path: Path, catalog: Receiver) -> None:
    copy = Told(tmp_path, catalog.url)
    told = open_lineage(copy.replicator, None, tmp_path)
    assert told is not None
    told.start()
    cases = ("SoftDelete", ["_is_deleted", "_deleted_at"]), ("Versions", ["_valid_from", "_valid_to"])
    for number, (history, added) in enumerate(cases, 1):
        table = table_log(keyed(1, "one", "main").model_copy(update={"history": history}))
        told.step(log_state(table), Progress(), Places(copy.replicator.spec).target)
        told.step(log_state(), Progress(), Places(copy.replicator.spec).target)
        await_runs(catalog, number)
        (source,), (target,) = catalog.of(ONE)[-1]["inputs"], catalog.of(ONE)[-1]["outputs"]
        names = [field["name"] for field in target["facets"]["schema"]["fields"]]
        own = [field["name"] for field in source["facets"]["schema"]["fields"]]
        assert names[: len(own) + 2] == own + added and list(target["facets"]["columnLineage"]["fields"]) == own
    told.end("ABORT")


def test_a_run_whose_start_arrived_and_whose_end_did_not_is_ended_by_a_later_process(
    tmp_path: Path, catalog: Receiver
) -> None:
    copy = Told(tmp_path, catalog.url)
    stop = TableStopped(table_id=1, seq=Seq(1), error="NoKey", message="no key", fix="Add one.", where="source")
    stopped = table_log(keyed(1, "one", "main")).model_copy(update={"stopped": stop})
    told = open_lineage(copy.replicator, None, tmp_path)
    assert told is not None
    told.start()
    until(lambda: catalog.kinds("shop") == ["START"], "the driver's run", 20)
    catalog.statuses += [201, *[503] * 9]
    told.step(log_state(stopped), Progress(), Places(copy.replicator.spec).target)
    until(lambda: len(catalog.statuses) < 9, "both were sent", 20)
    told.step(log_state(stopped), Progress(), Places(copy.replicator.spec).target)
    told._sender.close(1)
    catalog.statuses.clear()
    assert catalog.kinds(ONE) == ["START"]
    told = open_lineage(copy.replicator, None, tmp_path)
    assert told is not None
    told.start()
    told.end("ABORT")
    assert catalog.kinds(ONE) == ["START", "ABORT"]


def test_a_receiver_that_is_down_or_silent_changes_nothing_for_the_copy(tmp_path: Path, catalog: Receiver) -> None:
    catalog.released.clear()
    copy = Told(tmp_path, catalog.url)
    with copy.running():
        copy.equal()
        assert copy.lineage is not None and copy.lineage.status.sent == 0 and copy.lineage.status.waiting
        copy.driver.control.lineage = copy.lineage
        told = copy.driver.control.status().lineage
        assert told is not None and told.waiting
        text = metrics.render(copy.driver.control.status()).decode()
        assert 'tailrace_lineage_events_total{result="sent"} 0.0' in text
        catalog.released.set()
        until(lambda: copy.lineage is not None and copy.lineage.status.waiting == 0, "all events", 30)
    copy.lineage = None
    # One that has not answered in time is asked again, and may have had the event.
    events = {json.dumps(event, sort_keys=True): event for event in catalog.events}
    lineage.check_all(list(events.values()))
    (tmp_path / "down").mkdir()
    down = Told(tmp_path / "down", "http://127.0.0.1:1")
    with down.running():
        down.equal()
        assert down.lineage is not None
        sender = down.lineage._sender
        until(lambda: sender.status.fault, "the fault", 30)
    assert sender.status.sent == 0 and sender.status.dropped >= 3
