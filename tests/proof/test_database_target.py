"""A database as the target: readers see whole source transactions, whoever is killed; source = target afterwards.

All of Tailrace is in one process each; `tests/soak/test_soak_database_target.py` has whole drivers.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.database_copies import of_manifest, settle
from support.proof.money import TOTAL, transfers
from support.proof.process import forked_copies
from support.proof.sums import OF_MYSQL, OF_POSTGRES, Copies, Reader, copies_between, in_turn


@pytest.fixture(params=[*in_turn(OF_POSTGRES), *in_turn(OF_MYSQL)], ids="-to-".join)
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.mark.timeout(600)
def test_readers_see_whole_source_transactions_whoever_is_killed(copies: Copies, tmp_path: Path) -> None:
    """In the middle of the first snapshot, and when the tables have become level."""
    manifest = copies.begin(tmp_path, seed=5).manifest
    with Reader(copies) as reader, ExitStack() as writing:
        writing.enter_context(copies.writing(seed=5, count=1))
        writing.enter_context(transfers(copies.source))
        for seam, level in (("apply.before-commit=kill@15", False), ("apply.after-commit=kill@3", True)):
            died = forked_copies(manifest, tmp_path, seam, level)
            assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
        last = of_manifest(manifest, tmp_path)
        with last.running():
            before = len(reader.sums)
            last.until(lambda _: len(reader.sums) > before + 25, work=True)
            writing.close()
            settle(last)
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()
