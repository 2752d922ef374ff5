"""A Replicator whose source is idle, for hours and years: what it asks of an object store."""

import time
from collections import Counter
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.proof.harness import SMALL, Proof
from support.proof.on_s3 import OnS3
from support.s3 import S3Server
from support.s3_requests import Bill

CALM_SECONDS = 20.0
"""After the snapshots: the last records and their commits."""
IDLE_SECONDS = 60.0
FRESHNESS_SECONDS = 2
"""The setting of `Deployment`."""
BUSY_SECONDS = 8
FIRST = 16
"""Requests that read the keys of the snapshots' files, of three tables."""
BESIDES = 2
"""Requests of the change log that are not for each record, such as the file of measured freshness."""
MOST = 30
"""Requests in that time: the look for other writers, and the records by which the source may forget its log."""


@pytest.mark.timeout(600)
def test_an_idle_replicator_asks_its_storage_for_next_to_nothing(
    s3: S3Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    on_s3 = OnS3(s3, tmp_path / "s3-keys")
    on_s3.write_keys()
    proof = Proof.begin_on_s3(on_s3, postgres, tmp_path, 41, rows=SMALL, snapshot={"chunkRows": 2 * SMALL})
    run = proof.deployment.start()
    try:
        run.until(proof.completed(3), 300, "the initial snapshots")
        time.sleep(CALM_SECONDS)
        before = len(s3.requests())
        time.sleep(IDLE_SECONDS)
        asked = s3.requests()[before:]
        print(f"{len(asked)} requests in {IDLE_SECONDS:.0f} s idle")
        assert len(asked) <= MOST, Counter(request.rpartition("/")[0] for request in asked)
        before = len(s3.requests())
        for _ in range(BUSY_SECONDS):
            postgres.execute("UPDATE proof.single SET v = v + 1 WHERE ctid IN (SELECT ctid FROM proof.single LIMIT 1)")
            time.sleep(1)
        time.sleep(2 * FRESHNESS_SECONDS)
        bill = Bill(s3.requests()[before:], BUSY_SECONDS)
        print(bill)
        assert bill.records and bill.commits
        assert bill.of_tables(writes=True) <= 2 * bill.commits and bill.of_tables() <= 5 * bill.commits + FIRST
        assert bill.of_log(writes=True) <= 2 * bill.records + BESIDES
        assert bill.of_log() <= 5 * bill.records + BESIDES
        proof.settle(run)
    finally:
        proof.deployment.close()
