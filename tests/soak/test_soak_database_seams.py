"""SIGKILL at every seam between two durable writes, with writers running and copies in a database: source = target
afterwards.

All of Tailrace is in one process, so each kill takes capture, planner and apply at once. With processes of their own:
`proof/test_seams.py`; where PostgreSQL and MySQL define tables: `integration/targets/test_mysql_copies.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.database_copies import of_manifest, settle
from support.mysql import MARIADB_NEWEST, MYSQL
from support.postgres import PostgresServer
from support.proof.process import forked_copies
from support.proof.sums import Copies, copies_in, differences, replicated

START = ("capture.after-publication", "capture.after-slot", "capture.after-origin", "snapshot.after-plan")
READING = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read", "snapshot.before-register")
STREAM = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
APPLY = ("snapshot.after-register", "apply.before-commit", "apply.after-commit")
NEW_COPY = ("publish.before", "publish.after")
"""A new copy takes the place of the old one."""


@pytest.fixture(params=["postgresql", MYSQL, MARIADB_NEWEST])
def copies(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Copies]:
    with copies_in(request.param, postgres) as made:
        yield made


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("early", "late"), [(START + READING, ()), ((), STREAM + APPLY), ((), NEW_COPY)])
def test_kills_at_every_seam_lose_and_double_nothing(
    copies: Copies, tmp_path: Path, early: tuple[str, ...], late: tuple[str, ...]
) -> None:
    """`early`: from the start on; `late`: when all tables have been read, and are read again."""
    proof = replicated(copies, tmp_path, seed=6)
    writers, manifest = proof.writers(seed=6, count=1), proof.deployment.manifest
    for number, seam in enumerate(early):
        died = forked_copies(manifest, tmp_path, f"{seam}=kill@{1 + (seam in READING) * number % 3}", level=False)
        assert died.wait(120) == -9, f"{seam} was never reached\n{died.tail()}"
    for number, seam in enumerate(late):
        again = "resync" if seam in NEW_COPY else "read"
        died = forked_copies(manifest, tmp_path, f"{seam}=kill@{1 + number % 2}", level=True, again=again)
        assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
    last = of_manifest(manifest, tmp_path)
    with last.running():
        writers.stop()
        settle(last)
    assert not differences(copies)
    proof.assert_nothing_acknowledged_early()
