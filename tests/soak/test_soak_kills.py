"""Rounds of random kills: any process, any seam, any time, with writers, TRUNCATE and stalled commits at work.

`TAILRACE_SOAK_ROUNDS` (default 6) rounds, in turn two with Delta, two with Iceberg, and two with both the Delta tables
and the change log on S3; server versions alternate. Each ends with source = target.
"""

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.postgres import PostgresServer
from support.proof.harness import Proof
from support.proof.kills import live_and_die
from support.proof.on_s3 import OnS3
from support.proof.writers import StalledCommits
from support.s3 import S3Server

ROUNDS = int(os.environ.get("TAILRACE_SOAK_ROUNDS", "6"))
OFTEN: dict[str, Any] = {"retention": {"time": "5s"}}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_kills_leave_no_wrong_row(s3: S3Server, tmp_path: Path, number: int) -> None:
    random = Random(number)
    with PostgresServer((14, 18)[number % 2]) as server:
        place = ("delta", "iceberg", "s3")[number // 2 % 3]
        if place == "s3":
            on_s3 = OnS3(s3, tmp_path / "s3-keys")
            on_s3.write_keys()
            proof = Proof.begin_on_s3(on_s3, server, tmp_path, number, **OFTEN)
        else:
            proof = Proof.begin(server, tmp_path, place, number, **OFTEN)
        writers = proof.writers(seed=number, count=6, pause=0.01, truncate=True)
        stalls = StalledCommits(server.connect, seed=number)
        stalls.start()
        try:
            for life in range(5):
                live_and_die(proof.deployment, "proof.*", random, life)
            _die_in_retention(proof)
        finally:
            proof.deployment.close()
        stalls.stop()
        writers.stop()
        proof.deployment.once(600)
        proof.assert_equal()
        proof.assert_nothing_acknowledged_early()


def _die_in_retention(proof: Proof) -> None:
    """A life that is long enough for it: capture trims the log once a minute."""
    proof.deployment.close()  # the next driver would adopt the last one's capture, where this seam is not armed
    run = proof.deployment.start(seams="retention.after-event=kill")
    run.until(lambda: any(proof.deployment.marks.iterdir()), 300, "the log to be trimmed")
    time.sleep(5)
    run.kill()
