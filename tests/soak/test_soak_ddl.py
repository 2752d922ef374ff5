"""The DDL fuzzer for as long as wanted, and all directed scenarios at all timings.

`TAILRACE_SOAK_DDL_SECONDS` (default 3600) of random scripts from seed `TAILRACE_SOAK_DDL_SEED` (default 0) on; server
versions alternate. A failed seed is told as the shortest script that shows it, for `support.ddl.replay`; the others go
on, and the test fails at its end.
"""

import os
import time
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.fuzz import Rounds
from support.ddl.in_process import in_process
from support.ddl.scenarios import TIMINGS, packs, read
from support.ddl.script import run
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_DDL_SECONDS", "3600"))
SEED = int(os.environ.get("TAILRACE_SOAK_DDL_SEED", "0"))
PER_SERVER = 10
"""Rounds on one server: its catalog grows."""


@pytest.mark.timeout(SECONDS + 1800)
def test_random_ddl_is_followed_or_stops_the_table_by_name(fork_server: ForkServer, tmp_path: Path) -> None:
    end, seed, failed, kinds = time.monotonic() + SECONDS, SEED, list[str](), set[str]()
    while time.monotonic() < end:
        with PostgresServer((18, 14, 17, 14, 16, 15)[seed // PER_SERVER % 6]) as server:
            rounds = Rounds(server, fork_server, tmp_path / str(seed), shrink_seconds=120)
            for _ in range(PER_SERVER):
                told = rounds.play(seed, operations=30)
                if told is not None:
                    print(told)
                    failed.append(told)
                seed += 1
            kinds |= rounds.kinds
            print(f"{seed - SEED} rounds, {len(kinds)} kinds, {len(failed)} failed", flush=True)
    assert not failed, f"{len(failed)} of {seed - SEED} rounds failed; the first:\n{failed[0]}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("major", [14, 18])
@pytest.mark.parametrize("timing", TIMINGS)
def test_all_scenarios_at_all_timings(fork_server: ForkServer, tmp_path: Path, timing: str, major: int) -> None:
    wrong: list[str] = []
    with PostgresServer(major) as server:
        for number, pack in enumerate(packs([s for s in read() if s.since <= major], timing)):
            with in_process(server, fork_server, tmp_path, f"ddl{number}", **pack.spec) as one:
                outcome = run(one, list(pack.script(timing)), strict=major >= 15, fix=pack.fix)
            wrong += pack.by_scenario(outcome.wrong)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("timing", ["stopped", "killed"])
@pytest.mark.parametrize("major", [14, 15, 16, 17])
def test_before_18_a_publication_that_was_made_again_while_nothing_ran_stops_the_replicator_by_name(
    fork_server: ForkServer, tmp_path: Path, major: int, timing: str
) -> None:
    (pack,) = packs([s for s in read() if s.name == "7-publication-recreated"], timing)
    with (
        PostgresServer(major) as server,
        in_process(server, fork_server, tmp_path, "ddl", **pack.spec) as one,
    ):
        outcome = run(one, list(pack.script(timing)), strict=major >= 15, fix=pack.fix)
    (wrong,) = outcome.wrong
    assert "PositionLost" in wrong and 'publication "given" does not exist' in wrong
