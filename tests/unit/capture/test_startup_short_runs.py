"""Short runs, as cron makes them, leave a change log that does not grow and starts that stay in_process."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from support import short_runs
from tailrace.capture.recorder import Recorder
from tailrace.capture.requests import ChunkRequests
from tailrace.capture.retention_job import RetentionJob
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import ROLLUP_AT_END, JournalWriter
from tailrace.contract.resources import ReplicatorSpec, StorageLocation
from tailrace.errors import OutcomeUnknown
from tailrace.storage.store import Storage

RUN_RECORDS = 8
"""An epoch, changes, applied, a removal: at most."""
OBJECTS = 400
"""docs/performance.md."""


def test_80_short_runs_keep_objects_and_starts_bounded(tmp_path: Path) -> None:
    """No run came to the minute of the first trim, nor to the thousand records of a roll-up."""
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))
    measured = short_runs.run(storage, 80)
    assert max(measured.read) < ROLLUP_AT_END + RUN_RECORDS
    assert max(measured.objects) < OBJECTS, max(measured.objects)
    assert max(measured.objects[40:]) <= 1.1 * max(measured.objects[:40])


def test_the_end_of_a_run_is_clean_where_the_storage_does_not_answer(tmp_path: Path) -> None:
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))
    short_runs.run(storage, 20)
    journal = JournalWriter.claim(storage, "last", patience=-1.0)

    def broken(path: str, data: bytes) -> None:
        raise OutcomeUnknown(f"{path}: timed out")

    head = journal.state.number
    storage.create = broken  # type: ignore[method-assign]  # the fault of this test
    spec = SimpleNamespace(retention=SimpleNamespace(time="1s"), retry=SimpleNamespace(time="1h"))
    requests = SimpleNamespace(point_now=lambda: 9, floors=dict, cut_off=frozenset(), retention_ran=False)
    RetentionJob(
        cast(ReplicatorSpec, spec),
        cast(Recorder, SimpleNamespace(journal=journal)),
        cast(ChunkRequests, requests),
        lambda: Position(6),
    ).finish()
    assert JournalReader.open(storage).state.number == head
