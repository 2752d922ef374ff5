"""A database as the target: readers see whole source transactions, whoever is killed; source = target afterwards.

All of Tailrace is in one process each; `tests/soak/test_soak_database_target.py` has whole drivers.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.database_copies import of_manifest, settle
from support.mysql import TARGETS
from support.postgres import PostgresServer
from support.proof.money import TOTAL, transfers
from support.proof.process import forked_copies
from support.proof.sums import Copies, Reader, copies_in, differences, replicated
from support.versions import turns


@pytest.fixture(params=turns("postgresql", *TARGETS))
def copies(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Copies]:
    with copies_in(request.param, postgres) as made:
        yield made


@pytest.mark.timeout(600)
def test_readers_see_whole_source_transactions_whoever_is_killed(copies: Copies, tmp_path: Path) -> None:
    """In the middle of the first snapshot, and when the tables have become level."""
    proof = replicated(copies, tmp_path, seed=5)
    writers = proof.writers(seed=5, count=1)
    with Reader(copies) as reader, ExitStack() as moving:
        moving.enter_context(transfers(copies.source))
        for seam, level in (("apply.before-commit=kill@15", False), ("apply.after-commit=kill@3", True)):
            died = forked_copies(proof.deployment.manifest, tmp_path, seam, level)
            assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
        last = of_manifest(proof.deployment.manifest, tmp_path)
        with last.running():
            before = len(reader.sums)
            last.until(lambda _: len(reader.sums) > before + 25, work=True)
            writers.stop()
            moving.close()
            settle(last)
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not differences(copies)
    proof.assert_nothing_acknowledged_early()
