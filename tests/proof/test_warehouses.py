"""A warehouse's emulator as the target while everything is killed, with writers running: source = target afterwards.

All of Tailrace is in one process; `tests/soak/test_soak_warehouses.py` has whole drivers and all seams.
"""

from pathlib import Path

import pytest

from support.database_copies import of_manifest, settle
from support.postgres import PostgresServer
from support.proof.in_warehouse import replicated
from support.proof.process import forked_copies
from support.versions import turns
from support.warehouse_reader import WITH_ARRAYS

SEAMS = (
    ("snapshot.before-register", "apply.before-commit"),
    ("snapshot.after-register", "apply.after-commit"),
    ("journal.before-create", "capture.before-ack"),
    ("capture.after-segments", "journal.after-create"),
)
"""The first in the middle of the first snapshot, the second when the tables are level."""
CASES = (
    *(("bigquery", pair) for pair in SEAMS),
    *(("snowflake", pair) for pair in SEAMS),
    ("snowflake", ("copy.recorded", "snowflake.before-commit")),
    *((WITH_ARRAYS, pair) for pair in SEAMS[:2]),
)


@pytest.mark.timeout(600)
@pytest.mark.turn(3, 4)  # the emulators take long for each batch
@pytest.mark.parametrize(("target", "seams"), turns(*CASES))
def test_kills_lose_and_double_nothing(
    postgres: PostgresServer, request: pytest.FixtureRequest, tmp_path: Path, target: str, seams: tuple[str, str]
) -> None:
    proof = replicated(postgres, tmp_path, target, request, seed=8, chunk_rows=1000)
    writers, manifest = proof.writers(seed=8, count=1, pause=0.2), proof.deployment.manifest
    for seam, level in zip(seams, (False, True), strict=True):
        died = forked_copies(manifest, tmp_path, f"{seam}=kill@2", level)
        assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
    last = of_manifest(manifest, tmp_path)
    with last.running():
        writers.stop()
        settle(last)
    proof.assert_equal()
    proof.assert_nothing_acknowledged_early()
