"""A status that takes tables over from the last one says what one that is assembled afresh does."""

from random import Random
from typing import Any

import pytest

from support.apply_loop import table as table_with
from support.states import log_state, snapshot
from tailrace.apply.progress import TableProgress
from tailrace.changelog.logged import Verified
from tailrace.changelog.records.snapshots import ComparisonResult, ReadFailure, SnapshotPlanned
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.state import TableLog
from tailrace.contract.status import Fault, TableCounters
from tailrace.driver.telling import status
from tailrace.driver.telling.resting_statuses import RestingStatuses
from tailrace.driver.telling.status import Moment, assemble

FAULT = Fault(name="Retry", message="m", since=1, where="target")
UNREAD = ReadFailure(message="m", fix="f", where="source")
FOUND = ComparisonResult(rows=3)


def moment(known: dict[int, TableLog], resting: RestingStatuses | None = None, **more: Any) -> Moment:
    snapshots = more.pop("snapshots", {})
    log = log_state(*known.values(), number=99, snapshots=snapshots)
    return Moment(name="shop", now=1e6, started_at=0.0, log=log, resting=resting, **more)


def brought(random: Random, table_id: int) -> TableLog:
    made = table_with(table_id, *sorted(random.sample(range(2, 20), random.randint(0, 3))))
    verified = Verified(snapshot_id="v", at_record=RecordNumber(3), position=Position(7), ended_at=5, found=FOUND)
    return made.model_copy(
        update={
            "unread": UNREAD if random.random() < 0.2 else None,
            "verified": verified if random.random() < 0.3 else None,
            "removed": random.random() < 0.1,
        }
    )


def moved(random: Random) -> TableProgress:
    record = RecordNumber(random.choice([-1, 1, 5, 19, 19, 19, 30]))
    return TableProgress(
        Seq(4),
        record,
        record,
        frozenset({("1",)}) if random.random() < 0.1 else frozenset(),
        TableCounters(inserts=random.randint(0, 3)),
        fault=FAULT if random.random() < 0.1 else None,
        stopped=random.random() < 0.1,
        replacing=random.random() < 0.1,
    )


@pytest.mark.parametrize("seed", range(10))
def test_it_says_the_same_as_a_status_that_is_assembled_afresh(seed: int) -> None:
    random, resting = Random(seed), RestingStatuses()
    tables = {i: brought(random, i) for i in range(1, 7)}
    progress = {i: moved(random) for i in tables}
    for _ in range(150):
        one = random.randint(1, 6)
        match random.choice(["log", "moved", "covered", "covered", "nothing", "gone"]):
            case "log":
                tables[one] = brought(random, one)
            case "moved":
                progress[one] = moved(random)
            case "covered":  # by a record that brings nothing
                known = progress.get(one, TableProgress())
                record = RecordNumber(known.applied_record + random.choice([-9, 1, 1, 1]))
                progress[one] = TableProgress(**{**vars(known), "applied_record": record})
            case "gone":
                tables.pop(one, None)
            case _:
                pass
        rates = {i: 3.0 for i in tables if random.random() < 0.1}
        read = SnapshotPlanned(snapshot_id="r", tables=tuple(i for i in tables if random.random() < 0.1))
        more: dict[str, Any] = {
            "table_rates": rates,
            "snapshots": {"r": snapshot(read)} if random.random() < 0.5 else {},
            "fault": FAULT if random.random() < 0.1 else None,
        }
        found = assemble(moment(tables, resting, tables=dict(progress), **more))
        assert found == assemble(moment(tables, tables=dict(progress), **more))
        resting.keep(tables)


def test_tables_at_rest_are_assembled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two thousand of them a status took 50 ms, several times a minute."""
    assembled: list[int] = []
    make = status._assembled

    def counted(at: Moment, log: TableLog, progress: TableProgress) -> Any:
        assembled.append(log.table_id)
        return make(at, log, progress)

    monkeypatch.setattr(status, "_assembled", counted)
    resting, tables = RestingStatuses(), {i: table_with(i, 3) for i in range(20)}
    for record in range(10, 20):
        at = TableProgress(Seq(4), RecordNumber(record), RecordNumber(3))
        busy = TableProgress(Seq(record), RecordNumber(record), RecordNumber(record))
        progress = {**dict.fromkeys(tables, at), 7: busy}
        rows = assemble(moment(tables, resting, tables=progress)).tables
        assert {row.applied_record for row in rows} == {record}
    assert sorted(assembled) == sorted([*range(20), *[7] * 9])
