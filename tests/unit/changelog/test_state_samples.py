"""Stored samples of older journals: what earlier versions wrote is read, and means what it meant to them."""

import json
from pathlib import Path
from typing import Any

from tailrace.changelog.records import Record
from tailrace.changelog.state import LogState, fold

SAMPLE = Path(__file__).parent / "samples" / "journal-0.1"
"""302 records, the roll-up after record 250 as one JSON document, and what its version made of all records."""
ROLLUP = 250


def records() -> list[Record]:
    return [Record.model_validate_json(line) for line in (SAMPLE / "records.jsonl").read_text().splitlines()]


def summary(state: LogState) -> dict[str, Any]:
    known = state.transactions
    return {
        "number": state.number,
        "epoch": state.epoch,
        "last_seq": state.last_seq,
        "position": state.position,
        "transactions": [list(known.xids), list(known.first_seqs), known.removed_through],
        "commit_times": state.commit_times.lines().tolist(),
        "tables": {
            str(table_id): {
                "segments": [s.model_dump() for s in table.segments],
                "applied": [table.applied_seq, table.applied_record],
                "removed_through": table.removed_through,
                "removed": table.removed,
                "versions": [s.table.version for s in table.schemas],
                "chunks": [[c.record, c.chunk.snapshot_id, c.chunk.chunk, c.chunk.replay_point] for c in table.chunks],
            }
            for table_id, table in state.tables.items()
        },
        "snapshots": sorted(state.snapshots),
    }


def test_records_of_version_0_1_fold_to_what_that_version_made_of_them() -> None:
    state = LogState()
    for record in records():
        state = fold(state, record)
    assert summary(state) == json.loads((SAMPLE / "expected.json").read_text())


def test_a_roll_up_of_version_0_1_is_read_and_goes_on() -> None:
    state = LogState.model_validate_json((SAMPLE / f"rollup-{ROLLUP}.json").read_text())
    assert max(len(table.segments) for table in state.tables.values()) > 50
    for record in records()[ROLLUP + 1 :]:
        state = fold(state, record)
    assert summary(state) == json.loads((SAMPLE / "expected.json").read_text())
