"""Stored samples of journals: what earlier versions wrote means what it meant to them, or is refused by name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.changelog.append_list import AppendList
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.logged import RESUMED
from tailrace.changelog.paths import is_bundle, record_path, rollup_path
from tailrace.changelog.records import Record, Segment
from tailrace.changelog.records.terms import Position
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.segments import open_segment
from tailrace.changelog.state import HANDLERS, LogState, fold
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog
from tailrace.sources.mysql.state import Anchor, SourceState
from tailrace.storage.store import Storage

SAMPLES = Path(__file__).parent / "samples"
SAMPLE = SAMPLES / "journal-6"
"""302 records, two roll-ups with their parts, and what all records mean. `further.jsonl`: what came to the format
later, behind them, with what MySQL keeps; `nulled.jsonl`: the same of values that became NULL;
`cascades.jsonl`: rows that foreign keys have reached; `bundled.jsonl`: two segments whose bundle is stored, too."""
ROLLUP = 250
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def records(file: str = "records.jsonl") -> list[Record]:
    return [Record.model_validate_json(line) for line in (SAMPLE / file).read_text().splitlines()]


def summary(state: LogState) -> dict[str, Any]:
    known = state.transactions
    return {
        "number": state.number,
        "epoch": state.epoch,
        "last_seq": state.last_seq,
        "position": state.position,
        "source_state": state.source_state,
        "transactions": [*map(list, known.starts), known.trimmed_through],
        "commit_times": state.commit_times.lines().tolist(),
        "tables": {
            str(table_id): {
                "segments": [s.model_dump() for s in table.segments],
                "applied": [table.applied_seq, table.applied_record],
                "trimmed_through": table.trimmed_through,
                "removed": table.removed,
                "versions": [s.table.version for s in table.schemas],
                "chunks": [[c.record, c.chunk.snapshot_id, c.chunk.chunk, c.chunk.replay_point] for c in table.chunks],
            }
            for table_id, table in state.tables.items()
        },
        "snapshots": sorted(state.snapshots),
    }


def test_records_fold_to_what_their_version_made_of_them() -> None:
    state = LogState()
    for record in records():
        state = fold(state, record)
    assert summary(state) == json.loads((SAMPLE / "expected.json").read_text())


def test_a_roll_up_is_read_and_goes_on() -> None:
    rollups, state = Rollups.load(Storage.open(StorageLocation(location=SAMPLE.as_uri())))
    assert rollups.number == ROLLUP
    assert max(len(table.segments) for table in state.tables.values()) > 50
    assert all({is_bundle(s.segment.path) for s in table.segments} == {True, False} for table in state.tables.values())
    for record in records()[ROLLUP + 1 :]:
        state = fold(state, record)
    assert summary(state) == json.loads((SAMPLE / "expected.json").read_text())


def test_every_kind_of_event_is_in_a_sample() -> None:
    found = {
        type(event)
        for file in ("records.jsonl", "further.jsonl", "cascades.jsonl", "signals.jsonl")
        for r in records(file)
        for event in r.events
    }
    assert found == set(HANDLERS)


def check_rewind(state: LogState, wanted: Record, refused: Record) -> None:
    state = fold(state, wanted)
    back = state.snapshots["back"]
    assert back.plan.rewind is not None and back.ended is None and not (back.tables or back.plan.whole)
    assert (back.plan.rewind.cut, back.plan.rewind.record, back.plan.rewind.tables) == ("before_sale", 315, (1,))
    ended = fold(state, refused).snapshots["back"].ended
    assert ended is not None and ended.failure is not None and ended.failure.fix == "Choose a later cut."


def test_events_that_came_later_mean_what_they_meant() -> None:
    state = LogState()
    for record in records():
        state = fold(state, record)
    marked, stopped, paused, moved, owned, renewed, forgotten, dropped, verified, cascaded, *cuts = records(
        "further.jsonl"
    )
    state = fold(fold(state, marked), stopped)
    fingerprint, stop = state.tables[1].fingerprint, state.tables[1].stopped
    assert fingerprint == {"columns": {"id": "bigint", "c1": "text"}, "partitions": {"p1": "4711", "p2": "written"}}
    assert stop is not None and (stop.error, stop.where) == ("NoKey", "source")
    state = fold(state, paused)
    assert state.snapshots["k"].suspended
    state = fold(fold(state, moved), owned)
    assert state.origin is not None
    assert (state.origin.identity["files before"], state.owner) == ("7", "team/shop@1f0c")
    known = SourceState.read(state.source_state)
    assert known == SourceState(f"{SERVER}:1-9", Anchor(Position(4294968500), "0123456789abcdef"))
    state = fold(state, renewed)
    assert state.renewal is not None and state.renewal.request == "after-loss"
    assert all(table.removed for table in state.tables.values())
    state = fold(state, forgotten)
    assert state.tables.keys() == {1, 2}
    state = fold(state, dropped)
    (copy,) = state.dropped
    assert (copy.place, copy.table_ids, copy.generation, copy.free) == (("public", "t1"), (1,), 311, True)
    state = fold(state, verified)
    result = state.tables[1].verified
    assert result is not None and (result.snapshot_id, result.at_record) == ("v", verified.number)
    assert (result.found.rows, result.found.missing, result.found.extra, result.found.different) == (3, 1, 2, 1)
    assert not state.tables[1].chunks and not state.tables[1].finishes
    state = fold(state, cascaded)
    assert [(c.record, c.since) for c in state.tables[1].cascades] == [(cascaded.number, cascaded.written_at)]
    read = state.tables[1].model_copy(update={"read_record": cascaded.number, "cascades": AppendList()})
    state = state.model_copy(update={"tables": {**state.tables, 1: read}})
    made, held, without, let_go, wanted, refused = cuts
    state = fold(state, made)
    assert state.cuts["20261128_120000"].awaited == {1}
    state = fold(state, held)
    cut = state.cuts["20261128_120000"]
    assert (cut.record, cut.scheduled, cut.awaited, cut.versions) == (made.number, True, frozenset(), {1: 4711})
    state = fold(fold(state, without), let_go)
    assert state.cuts.keys() == {"before_sale"}
    assert state.cuts["before_sale"].without == {1: "3 rows were withheld until they are read again"}
    check_rewind(state, wanted, refused)
    (looked,) = records("cascades.jsonl")
    state = fold(state, looked)
    reached = state.tables[1].cascades[-1]
    assert (reached.record, reached.snapshots) == (looked.number, ("cascade-1-0",))
    assert [(r.columns, r.values) for r in reached.rows] == [((2,), (("7",), ("8",)))]
    assert [(t.parent, t.referenced, t.columns) for t in reached.through] == [(1, (1,), (3,))]
    assert (state.tables[1].edge, state.tables[1].cascaded_seq) == ("9", looked.last_seq)


def test_values_that_became_null_mean_what_they_meant() -> None:
    state = LogState()
    for record in (*records(), *records("nulled.jsonl")):
        state = fold(state, record)
    assert state.tables[1].nulled == (("c1", 3), ("c2", 3), ("c39", 1))


def test_a_stored_bundle_is_read() -> None:
    storage = Storage.open(StorageLocation(location=SAMPLE.as_uri()))
    found = []
    for line in (SAMPLE / "bundled.jsonl").read_text().splitlines():
        with open_segment(storage, Segment.model_validate_json(line)) as rows:
            assert isinstance(rows, pa.Table)
            found += rows.select(["_seq", "id", "c1"]).to_pylist()
    expected = [(1, 10, "row 0"), (2, 11, "row 1"), (3, 20, "row 0"), (4, 21, "row 1")]
    assert [tuple(row.values()) for row in found] == expected


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_journal_of_a_former_format_is_refused_by_its_number(tmp_path: Path, version: int) -> None:
    storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    record = (SAMPLES / f"journal-{version}" / "record-0.json").read_bytes()
    storage.put(record_path(0), record)
    with pytest.raises(CorruptLog, match=f"format version {version}, this is 6"):
        JournalReader.open(storage)
    origin = json.loads(record)["events"][0]
    for head in ({"number": 7, "origin": origin}, {"number": 7, "parts": [], "state": {"origin": origin}}):
        storage.put(rollup_path(7), json.dumps(head).encode())
        with pytest.raises(CorruptLog, match=f"format version {version}, this is 6"):
            JournalReader.open(storage)


def test_signals_mean_what_they_meant() -> None:
    state = LogState()
    received, answered, told, stopped, later, resumed = records("signals.jsonl")
    for record in (*records(), received, answered, told):
        state = fold(state, record)
    done, ignored = state.signals.values()
    assert (done.signal.id, done.signal.type, done.answer and done.answer.outcome) == (
        "ad-hoc-1", "execute-snapshot", "done",
    )  # fmt: skip
    assert ignored.signal.fault is not None and ignored.answer is not None
    assert ignored.signal.seq == done.signal.seq + 1 == state.last_seq
    assert state.notified == state.number - 1
    state = fold(fold(state, stopped), later)
    changed, full = state.copy_stops.values()
    assert (changed.tables, changed.error, changed.where, changed.away) == ({1: 1}, "TargetChanged", "target", False)
    assert (full.tables, full.error, full.away) == ({1: 1, 2: 1}, "StorageFull", True)
    assert LogState.model_validate_json(state.model_dump_json()).copy_stops == state.copy_stops
    assert fold(state, resumed).copy_stops.keys() == {"306.0"}
    assert fold(state, resumed).copy_stops["306.0"].tables == {1: RESUMED}, "it is told of once"
    for wrong in (stopped, resumed.model_copy(update={"events": resumed.events * 2})):
        with pytest.raises(CorruptLog, match=r"of copies (is|has)"):
            fold(state, wrong.model_copy(update={"number": state.number + 1}))
