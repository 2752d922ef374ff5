"""Random runs of an owner and a follower (`tests/unit/sources/followed`), many of them, and kills of the follower at
random seams between them, and of the owner, with retention."""

from pathlib import Path
from random import Random

import pytest

from support.followed import both_equal, followed, life, more, pair, survive
from support.killed import killed_at

SEAMS = (
    "follow.before-record", "capture.after-segments", "journal.before-create", "journal.after-create",
    "capture.before-ack",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_both_copies_equal_the_source(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with pair(tmp_path, random) as (owner, follower):
        followed(owner, follower, random, turns=60)


def test_a_follower_that_dies_forty_times(tmp_path: Path) -> None:
    random = Random(5)
    with pair(tmp_path, random) as (owner, follower):
        with owner.running():
            owner.level()
        with follower.running():
            follower.until(lambda state: bool(state.tables))
        for _ in range(40):
            with owner.running():
                more(owner.database, random.randint(1, 5))
                owner.level()
            killed_at(random.choice(SEAMS), lambda: life(follower))
        owner.start()
        follower.start()
        both_equal(owner, follower)


@pytest.mark.parametrize("seed", range(10))
def test_an_owner_and_a_follower_that_die_thirty_times(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with pair(tmp_path, random) as (owner, follower):
        survive(owner, follower, random, turns=30)
