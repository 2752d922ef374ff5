"""A driver that stands still in the middle of its work (SIGSTOP, as when its machine is suspended), and wakes up when
another one has taken over: readers of the target see whole source transactions meanwhile, and source = target
afterwards.

All of Tailrace is in one process each, and without the driver's look at who owns the change log: that the late one
doubles nothing is up to the states in the target. `tests/soak/test_soak_frozen_drivers.py` has whole drivers.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.database_copies import of_manifest, settle
from support.pipeline import Pipeline
from support.proof.money import TOTAL, transfers
from support.proof.process import forked_copies
from support.proof.sums import PAIRS, Copies, Reader, copies_between, end_by_hand, in_turn
from support.versions import turns
from support.waiting import until


@pytest.fixture(params=in_turn(PAIRS), ids="-to-".join)
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seam", turns("apply.before-commit", "apply.after-commit"))
def test_a_driver_that_wakes_up_late_doubles_nothing(copies: Copies, tmp_path: Path, seam: str) -> None:
    """It has changed rows and not committed, or has committed and not heard of it."""
    manifest, folder = copies.begin(tmp_path, seed=7).manifest, tmp_path / "next"
    folder.mkdir()
    with Reader(copies) as reader, ExitStack() as ending:
        ending.enter_context(copies.writing(seed=7, count=1))
        ending.enter_context(transfers(copies.source))
        late = forked_copies(manifest, tmp_path, f"{seam}=freeze@3", level=True)
        ending.callback(late.kill)
        late.until(late.frozen, 240, f"{seam} is reached")
        successor = of_manifest(manifest, folder)
        successor.retry = 60
        with successor.running():
            if seam == "apply.before-commit":
                end_by_hand(copies, lambda found: successor.until(lambda _: found(), work=True))
            sees_more(successor, reader)
            late.thaw()
            until(lambda: late.poll() is not None, lambda: f"it ends\n{late.tail()}")
            sees_more(successor, reader)
            ending.close()
            settle(successor)
    assert reader.sums and set(reader.sums) == {TOTAL}
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()


def sees_more(successor: Pipeline, reader: Reader) -> None:
    """Both tables are level again, and stay so."""
    news = reader.sees_news()
    successor.until(lambda _: news(), work=True)
