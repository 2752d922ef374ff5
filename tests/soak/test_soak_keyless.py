"""SIGKILL at every seam between two durable writes, while writers make rows of a table without a key equal and take
single ones of them: afterwards the target has as many of each row as the source."""

from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.proof import keyless
from support.proof.harness import Proof
from support.proof.keyless import NAME, KeylessWriters
from support.proof.writers import StalledCommits
from tailrace.changelog.records import Record
from tailrace.changelog.records.snapshots import ChunkRegistered

CAPTURE = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
"""Capture dies; the driver lives on and starts it again."""
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
"""An executor's Python worker dies, or with a table that is small at the time the driver; the table is read again."""
DRIVER = ("snapshot.before-register", "snapshot.after-register", "apply.before-commit", "apply.after-commit")
"""The driver dies with its JVM; the next one goes on."""
CASES = (("delta", 14), ("iceberg", 18), ("iceberg", 14), ("delta", 18))


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("format", "major"), CASES)
def test_whatever_is_killed_there_are_as_many_of_each_row_as_in_the_source(
    tmp_path: Path, format: str, major: int
) -> None:
    with PostgresServer(major) as server:
        proof = Proof.begin(server, tmp_path, format, 5, tables={"include": [NAME]})
        with server.connect() as connection:
            keyless.create(connection, 400, seed=5)
        writers, stalls = KeylessWriters(server.connect, count=4, seed=5, pause=0.03), StalledCommits(server.connect, 5)
        writers.start()
        stalls.start()
        try:
            kill_capture(proof)
            for seam in CHUNK:
                kill_reader(proof, seam)
            for number, seam in enumerate(DRIVER):
                request = proof.deployment.request(f"again-{number}", tables=[NAME])
                run = proof.deployment.start("-f", str(request), seams=f"{seam}=kill@{1 + number % 2}")
                # Capture lives on, and the next driver adopts it.
                assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
            stalls.stop()
            writers.stop()
            proof.deployment.once()
            assert proof.differences(NAME) == []
            proof.assert_nothing_acknowledged_early()
        finally:
            proof.deployment.close()
    print(f"{writers.transactions} transactions, {readings(proof.deployment.log)}")


def kill_capture(proof: Proof) -> None:
    plan = [f"{seam}=kill@{2 + 2 * i}" for i, seam in enumerate(CAPTURE)]
    run = proof.deployment.start(seams=",".join(plan))
    for number in range(3):
        run.until(proof.completed(number + 1), 120, f"reading {number}")
        proof.ask(f"early-{number}", tables=[NAME])
    run.until(lambda: len(list(proof.deployment.marks.iterdir())) == len(plan), 200, f"all of {plan} to be reached")
    run.until(proof.completed(4), 120, "the last reading")
    assert run.process.poll() is None, f"the driver ended with capture\n{run.tail()}"
    run.kill()


def kill_reader(proof: Proof, seam: str) -> None:
    request = proof.deployment.request(seam.replace(".", "-"), tables=[NAME])
    run, mark = proof.deployment.start("-f", str(request), seams=f"{seam}=kill"), proof.deployment.marks / seam
    run.until(lambda: mark.exists() or run.poll() is not None, 240, f"{seam} to be reached")
    assert mark.exists(), f"{seam} was never reached\n{run.tail()}"
    run.kill()


def readings(log: Path) -> str:
    events = [event for path in sorted((log / "journal").glob("[0-9]*.json")) for event in record(path).events]
    found = [event for event in events if isinstance(event, ChunkRegistered)]
    return f"{len(found)} readings, of which {sum(bool(c.seen) for c in found)} saw what lies behind their replay point"


def record(path: Path) -> Record:
    return Record.model_validate_json(path.read_bytes())
