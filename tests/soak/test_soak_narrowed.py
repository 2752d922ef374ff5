"""A publication that is narrowed and widened while the partitions of its table come and go, under writers.

`TAILRACE_SOAK_NARROWED_SECONDS` (default 600) of rounds from seed `TAILRACE_SOAK_NARROWED_SEED` (default 0) on, each
ended with a repair, and with source = target.
"""

import os
import time
from pathlib import Path
from random import Random

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import in_process
from support.ddl.narrowed import Narrowed, pausing_chunks
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_NARROWED_SECONDS", "600"))
SEED = int(os.environ.get("TAILRACE_SOAK_NARROWED_SEED", "0"))
ROUNDS, LONGEST = 8, 6.0
"""On one database; seconds of one."""


@pytest.mark.timeout(SECONDS + 600)
def test_every_repair_of_a_narrowed_publication_brings_all_rows(fork_server: ForkServer, tmp_path: Path) -> None:
    end, seed, rounds = time.monotonic() + SECONDS, SEED, 0
    with PostgresServer(18) as server:
        while time.monotonic() < end:
            rnd = Random(seed)
            pause = rnd.choice((0.0, 0.05, 0.3))
            snapshot = {"chunkRows": 7, "parallelism": 2}
            with (
                pausing_chunks(rnd, pause),
                in_process(server, fork_server, tmp_path, f"narrowed{seed}", snapshot=snapshot) as one,
            ):
                narrowed = Narrowed(one, rnd)
                narrowed.begin(given=rnd.random() < 0.5, pause=pause)
                for _ in range(ROUNDS):
                    wrong = narrowed.round(rnd.random() * LONGEST)
                    rounds += 1
                    assert not wrong, "\n".join([f"seed {seed}", *narrowed.told, *wrong])
            seed += 1
            print(f"{rounds} rounds", flush=True)
