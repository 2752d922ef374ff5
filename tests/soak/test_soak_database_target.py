"""A database as the target of whole drivers that are killed: readers see whole source transactions."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.proof.harness import ROWS
from support.proof.money import TOTAL, transfers
from support.proof.sums import PAIRS, Copies, Reader, copies_between


@pytest.fixture(params=PAIRS, ids="-to-".join)
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.mark.timeout(900)
def test_readers_see_whole_source_transactions_whoever_is_killed(copies: Copies, tmp_path: Path) -> None:
    with (
        closing(copies.begin(tmp_path, seed=5, rows=ROWS)) as deployment,
        Reader(copies) as reader,
        ExitStack() as writing,
    ):
        writing.enter_context(copies.writing(seed=5, count=2))
        writing.enter_context(transfers(copies.source))
        for seam in ("apply.before-commit=kill@15", "apply.after-commit=kill@8"):
            run = deployment.start(seams=seam)
            assert run.wait(240) != 0, f"{seam} was never reached\n{run.tail()}"
        run, before = deployment.start(), len(reader.sums)
        run.until(lambda: len(reader.sums) > before + 50, 240, "both tables are level again")
        writing.close()
        run.until(lambda: not copies.differences(), 240, "source = target", pause=1)
        assert run.stop() == 0, run.tail()
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()
