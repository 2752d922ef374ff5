"""BigQuery's emulator as the target while everything is killed, with writers running: source = target afterwards.

All of Tailrace is in one process; `tests/soak/test_soak_bigquery.py` has whole drivers and all seams.
"""

from pathlib import Path

import pytest

from support.bigquery import BigQueryService
from support.database_copies import of_manifest, settle
from support.postgres import PostgresServer
from support.proof.in_bigquery import replicated
from support.proof.process import forked_copies
from support.versions import turns

SEAMS = (
    ("snapshot.before-register", "apply.before-commit"),
    ("snapshot.after-register", "apply.after-commit"),
    ("journal.before-create", "capture.before-ack"),
    ("capture.after-segments", "journal.after-create"),
)
"""The first in the middle of the first snapshot, the second when the tables are level."""


@pytest.mark.timeout(600)
@pytest.mark.turn(0, 3)  # the emulator takes long for each batch
@pytest.mark.parametrize(("early", "late"), turns(*SEAMS))
def test_kills_lose_and_double_nothing(
    postgres: PostgresServer, bigquery: BigQueryService, tmp_path: Path, early: str, late: str
) -> None:
    proof = replicated(postgres, bigquery, tmp_path, seed=8, chunk_rows=1000)
    writers, manifest = proof.writers(seed=8, count=1, pause=0.2), proof.deployment.manifest
    for seam, level in ((f"{early}=kill@2", False), (f"{late}=kill@2", True)):
        died = forked_copies(manifest, tmp_path, seam, level)
        assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
    last = of_manifest(manifest, tmp_path)
    with last.running():
        writers.stop()
        settle(last)
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
