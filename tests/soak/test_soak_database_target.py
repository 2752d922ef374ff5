"""A database as the target of whole drivers that are killed: readers see whole source transactions."""

from collections.abc import Iterator

import pytest

from support.database_copies import place_of
from support.mysql import TARGETS
from support.postgres import PostgresServer
from support.proof.harness import Begin
from support.proof.money import MONEY, TOTAL, transfers
from support.proof.sums import Copies, Reader, copies_in, differences


@pytest.fixture(params=["postgresql", *TARGETS])
def copies(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Copies]:
    with copies_in(request.param, postgres) as made:
        yield made


@pytest.mark.timeout(900)
def test_readers_see_whole_source_transactions_whoever_is_killed(
    prove: Begin, postgres: PostgresServer, copies: Copies
) -> None:
    proof = prove("delta", seed=5, target=place_of(copies.server), apply={"freshness": "300ms"}, **copies.spec)
    postgres.execute(MONEY)
    writers = proof.writers(seed=5, count=2)
    with Reader(copies) as reader, transfers(postgres):
        for seam in ("apply.before-commit=kill@15", "apply.after-commit=kill@8"):
            run = proof.deployment.start(seams=seam)
            assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
        run, before = proof.deployment.start(), len(reader.sums)
        run.until(lambda: len(reader.sums) > before + 50, 240, "both tables are level again")
    writers.stop()
    run.until(lambda: not differences(copies), 240, "source = target")
    assert run.stop() == 0, run.tail()
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not differences(copies)
    proof.assert_nothing_acknowledged_early()
