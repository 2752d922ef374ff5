"""SIGKILL at every seam between two durable writes, and at random, with writers running and copies in a database:
source = target afterwards.

All of Tailrace is in one process, so each kill takes capture, planner and apply at once. With processes of their own:
`proof/test_seams.py`; where PostgreSQL and MySQL define tables: `integration/targets/test_mysql_copies.py`.
`TAILRACE_SOAK_ROUNDS` (default 1) rounds of random kills for each pair of source and target, from seed
`TAILRACE_SOAK_SEED` (default 0) on.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from support.database_copies import of_manifest, settle
from support.mysql import MARIADB_NEWEST, MYSQL
from support.proof.money import TOTAL, transfers
from support.proof.process import forked_copies
from support.proof.sums import OF_MYSQL, PAIRS, POSTGRES, Copies, OutOfPostgres, Reader, copies_between

ROUNDS = int(os.environ.get("TAILRACE_SOAK_ROUNDS", "1"))
SEED = int(os.environ.get("TAILRACE_SOAK_SEED", "0"))
OF_A_SLOT = ("capture.after-publication", "capture.after-slot")
START = ("capture.after-origin", "snapshot.after-plan", "copy.recorded")
READING = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read", "snapshot.before-register")
STREAM = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
APPLY = ("snapshot.after-register", "apply.before-commit", "apply.after-commit")
NEW_COPY = ("publish.before", "publish.after")
"""A new copy takes the place of the old one."""
LOADS = ("load.after-commit", "load.withdrawn")
"""Where chunks are loaded into the copy itself."""
SEAMED = (*((POSTGRES, target) for target in (POSTGRES, MYSQL, MARIADB_NEWEST)), *OF_MYSQL)
LIVES = 8


@pytest.fixture
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("copies", SEAMED, indirect=True, ids="-to-".join)
@pytest.mark.parametrize(("early", "late"), [(START + READING, ()), ((), STREAM + APPLY), ((), NEW_COPY)])
def test_kills_at_every_seam_lose_and_double_nothing(
    copies: Copies, tmp_path: Path, early: tuple[str, ...], late: tuple[str, ...]
) -> None:
    """`early`: from the start on; `late`: when all tables have been read, and are read again."""
    manifest = copies.begin(tmp_path, seed=6).manifest
    if early and isinstance(copies, OutOfPostgres):
        early = OF_A_SLOT + early
    with copies.writing(seed=6, count=1):
        for number, seam in enumerate(early):
            died = forked_copies(manifest, tmp_path, f"{seam}=kill@{1 + (seam in READING) * number % 3}", level=False)
            assert died.wait(120) == -9, f"{seam} was never reached\n{died.tail()}"
        for number, seam in enumerate(late):
            again = "resync" if seam in NEW_COPY else "read"
            died = forked_copies(manifest, tmp_path, f"{seam}=kill@{1 + number % 2}", level=True, again=again)
            assert died.wait(240) == -9, f"{seam} was never reached\n{died.tail()}"
    last = of_manifest(manifest, tmp_path)
    with last.running():
        settle(last)
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("copies", PAIRS, indirect=True, ids="-to-".join)
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_random_kills_leave_no_wrong_row_and_no_half_transaction(copies: Copies, tmp_path: Path, seed: int) -> None:
    """At any seam or at any time, while tables are read again or get a new copy."""
    random, seams, kills = Random(seed), (*START, *READING, *STREAM, *APPLY, *NEW_COPY, *LOADS), 0
    manifest = copies.begin(tmp_path, seed).manifest
    with Reader(copies) as reader, ExitStack() as writing:
        writing.enter_context(copies.writing(seed, count=2))
        writing.enter_context(transfers(copies.source))
        for life in range(LIVES):
            plan = ",".join(f"{seam}=kill@{random.randint(1, 9)}" for seam in random.sample(seams, 2))
            again = random.choice(("", "read", "resync")) if life else ""
            lives = forked_copies(manifest, tmp_path, plan, level=bool(life) and random.random() < 0.5, again=again)
            end = time.monotonic() + random.uniform(1, 15)
            while lives.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            kills += lives.poll() == -9
            assert lives.poll() in (None, -9), lives.tail()
            lives.kill()
        last = of_manifest(manifest, tmp_path)
        with last.running():
            before = len(reader.sums)
            last.until(lambda _: len(reader.sums) > before + 25, work=True)
            writing.close()
            settle(last)
    print(f"seed {seed}: {kills} of {LIVES} lives ended at a seam, {len(reader.sums)} sums")
    assert set(reader.sums) == {TOTAL}
    assert not copies.differences()
    copies.assert_nothing_acknowledged_early()
