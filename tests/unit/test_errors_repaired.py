"""The repairs that docs/operations.md names for errors that no source's product decides, executed: broken, named,
repaired as told, equal. (The others: `tests/proof/test_repairs*.py`; each name has a test, `test_repairs.py`.)

The error is what a start or the status says, the repair is what the document, or the message itself, tells to do.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.lake import InMemoryLake
from support.pipeline import RETRY_SECONDS
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.driver.telling.applied_report import Reporter
from tailrace.errors import Fenced, InvalidManifest, RemovalUnconfirmed, TailraceError, TargetRefused, where_of
from tailrace.storage.access import StorageRefused

ONE = 1
"""The table's id."""


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Copy]:
    """Everything is copied, and the Replicator is stopped."""
    made = Copy(filled("one", "two"), tmp_path)
    with made.running():
        made.level()
    yield made
    made.stop()


def test_invalid_manifest(one: Copy) -> None:
    one.document["spec"]["retention"] = {"time": "soon"}
    with pytest.raises(InvalidManifest, match=r"spec\.retention\.time is 'soon'"):
        one.start()
    one.document["spec"]["retention"] = {"time": "1h"}
    one.start()
    one.equal()


def test_removal_unconfirmed(one: Copy) -> None:
    tables = one.document["spec"]["tables"]
    one.document["spec"]["tables"] = {"include": ["other.*"]}
    code = one.refused(RemovalUnconfirmed).fix.split("'")[1]
    one.document["spec"]["tables"] = {"include": ["other.*"], "confirmRemoval": code}
    one.start()
    one.stop()
    one.document["spec"]["tables"] = tables
    one.start()
    one.equal()


def test_storage_refused(one: Copy) -> None:
    log, elsewhere = one.folder / "log", one.folder / "elsewhere"
    shutil.move(log, elsewhere)
    log.write_text("a file")
    assert where_of(one.refused(StorageRefused)) == "storage"
    log.unlink()
    shutil.move(elsewhere, log)
    one.start()
    one.equal()


def test_a_storage_that_goes_away_while_capture_runs_is_never_called_the_sources_fault(one: Copy) -> None:
    one.start()
    log = one.folder / "log"
    shutil.move(log, one.folder / "elsewhere")
    log.write_text("a file where the folder was")
    one.database.commit(Change("I", ONE, 2000, "+"))
    assert where_of(one.broken(TailraceError)) == "storage"
    log.unlink()
    shutil.move(one.folder / "elsewhere", log)
    one.start()
    one.equal()


def test_fenced(one: Copy, tmp_path: Path) -> None:
    one.start()
    (tmp_path / "other").mkdir()
    other = one.begin_capture(tmp_path / "other")
    one.until(lambda state: state.epoch == 2)
    one.database.commit(Change("U", ONE, 3, "read by both"))
    one.broken(Fenced)
    other.stop()
    other.check()
    one.start()
    one.equal()


def test_target_refused(one: Copy) -> None:
    """Those tables are moved away."""
    shutil.rmtree(one.folder / "log")
    one.database.readers.clear()
    one.start()
    with pytest.raises(TargetRefused, match="belongs to another change log"):
        one.level()
    one.stop()
    one.lake = InMemoryLake(one.folder / "new-lake")
    one.document["spec"]["target"]["location"] = (one.folder / "new-lake").as_uri()
    one.start()
    one.equal()


def test_snapshot_failed(one: Copy) -> None:
    """A resync is stopped after its target was replaced; a snapshot reads the rows."""
    one.start()
    one.level()
    hidden = one.database.commit(Change("U", ONE, 3, "hidden"), hidden=True)  # a chunk waits for it
    asked = one.ask("main.one", resync=True)
    one.until(lambda state: state.tables[ONE].resync == asked, work=True)
    one.driver.control.stop_snapshot(asked)
    one.database.hidden.discard(hidden)
    one.level()
    assert one.driver.faults() == {"main.one": "SnapshotFailed"}
    one.ask("main.one")
    one.equal()


def test_log_trimmed(one: Copy) -> None:
    """The target was deleted, and what it held is no longer in the log: a snapshot."""
    one.start()
    state = one.settle(one.database.end)
    Reporter(one.driver.client, one.driver.progress, lambda: RETRY_SECONDS).report(state, force=True)
    one.level()  # what the targets hold, the log has forgotten
    one.stop()
    del one.lake.tables["main", "one"]
    one.start()
    one.level()
    assert one.driver.faults() == {"main.one": "LogTrimmed"}
    one.ask("main.one")
    one.equal()


def test_chunk_lost(tmp_path: Path) -> None:
    """VACUUM, an orphan clean-up, or somebody's `rm` between registration and apply: nothing to do but to wait."""
    one = Copy(filled("one", rows=60), tmp_path)
    with one.running():
        one.until(lambda _: one.driver.tools.opened(ONE), work=True)
        while len(waiting_chunks(one)) < 2:
            one.driver.runner.step(0.02)
        for path in waiting_chunks(one):
            Path(path.removeprefix("file://")).unlink()
        one.until(lambda _: one.driver.faults() == {"main.one": "ChunkLost"}, work=True)
        one.equal()
        reasons = [snapshot.plan.reason for snapshot in one.state.snapshots.values()]
    assert sorted(reasons) == ["initial", "repair"]


def waiting_chunks(one: Copy) -> list[str]:
    """Files of those that are registered and not applied."""
    applied = one.driver.progress.all()[ONE].applied_record
    return [c.chunk.path for c in one.state.tables[ONE].chunks if c.record > applied and c.chunk.path is not None]
