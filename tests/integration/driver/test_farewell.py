"""A running driver that is asked to go for good: it drops what it made in its source, and waits to be ended."""

import signal
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.proof.process import Deployment, status
from tailrace.changelog.journal import JournalReader
from tailrace.cli.client import DriverClient
from tailrace.contract.resources import StorageSpec
from tailrace.driver.process.run_dir import RunFolder
from tailrace.storage.store import Storage


@pytest.mark.timeout(600)
def test_a_driver_that_is_asked_drops_its_slot_and_publication_and_leaves_the_copy(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Two readers of one database, as a Replicator and its namesake: only the one that is asked goes."""
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    postgres.execute("SELECT pg_create_logical_replication_slot('of_another', 'pgoutput')")
    place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
    source: dict[str, object] = {"type": "postgresql", **place}
    deployment = Deployment(tmp_path / "home", source, spec={"tables": {"include": ["public.*"]}})
    try:
        run = deployment.start()
        run.until(lambda: (status(deployment) or {}).get("tablesReplicating") == 1, 200, "the copy")
        client = DriverClient.of(RunFolder(deployment.state))
        client.drop("Retain")
        run.until(lambda: client.drop("Retain").done, 90, "the drop to be done")
        report = client.drop("Retain").report
        assert report is not None and report.owner == "proof" and report.kept == ()
        assert [line.split()[0] for line in report.dropped] == ["replication", "publication"]
        assert postgres.execute("SELECT slot_name FROM pg_replication_slots") == [("of_another",)]
        assert postgres.execute("SELECT pubname FROM pg_publication") == []
        assert run.process.poll() is None, "it waits to be ended: a restart would only find its position lost"
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(30) == 0
    finally:
        deployment.close()
    assert list(deployment.lake.rglob("*.parquet"))
    assert JournalReader.open(Storage.open(StorageSpec(location=deployment.log.as_uri()))).state.released
