"""A table all of whose versions stay in a database, whoever is killed: its whole history is what the commits of the
source were.

All of Tailrace is in one process each; `tests/soak/test_soak_kept_versions.py` has whole drivers, and lakes.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.database_copies import of_manifest, settle
from support.mysql import TARGETS
from support.postgres import PostgresServer
from support.proof.committed import KeptCommits, differing
from support.proof.kept_rows import kept_in, versions_of
from support.proof.process import forked_copies
from support.proof.sums import OutOfPostgres, copies_in
from support.versions import turns

SEAMS = ("apply.before-commit=kill@3", "apply.after-commit=kill@4", "snapshot.before-register=kill")


@pytest.fixture(params=turns("postgresql", *TARGETS))
def copies(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[OutOfPostgres]:
    with copies_in(request.param, postgres) as made:
        yield made


@pytest.mark.timeout(600)
def test_the_whole_history_is_that_of_the_source_s_commits_whoever_is_killed(
    copies: OutOfPostgres, tmp_path: Path
) -> None:
    """Killed around commits, and while the table is read once more; several changes of a row in one transaction, keys
    that change, TRUNCATEs, long values that the log does not carry."""
    source = KeptCommits(copies.source, Random(7))
    manifest = versions_of(copies, tmp_path)
    first = of_manifest(manifest, tmp_path)
    source.begin(0.005)
    with first.running():
        settle(first)
    ((whole,),) = copies.source.execute("SELECT clock_timestamp()")
    for number, seam in enumerate(SEAMS):
        died = forked_copies(manifest, tmp_path, seam, level=False, again="read" if number else "")
        assert died.wait(120) == -9, f"{seam} was never reached\n{died.tail()}"
    source.stop()
    last = of_manifest(manifest, tmp_path)
    with last.running():
        settle(last)
        assert last.ask("proof.kept")
        settle(last)
    found = kept_in(copies)
    different = differing(found, source.versions(), whole)
    assert not different, "\n".join(different)
    assert sum(end is not None and end > whole for *_, end in found) > 50
