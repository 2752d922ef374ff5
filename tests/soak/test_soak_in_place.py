"""Columns that are dropped, renamed, exchanged and added at random under `onSchemaChange: Evolve`.

`TAILRACE_SOAK_IN_PLACE_SECONDS` (default 900) of histories from seed `TAILRACE_SOAK_IN_PLACE_SEED` (default 0) on,
every other one patient (`support.ddl.in_place`); server versions alternate.
"""

import os
import time
from pathlib import Path

import pytest

from support.ddl.fork_server import PAUSES, ForkServer
from support.ddl.in_place import play
from support.ddl.in_process import in_process
from support.postgres import PostgresServer

SECONDS = float(os.environ.get("TAILRACE_SOAK_IN_PLACE_SECONDS", "900"))
SEED = int(os.environ.get("TAILRACE_SOAK_IN_PLACE_SEED", "0"))
PER_SERVER = 20


@pytest.mark.timeout(SECONDS + 900)
def test_columns_are_followed_in_place_or_the_table_starts_over_and_never_differs(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < end:
        with PostgresServer((18, 14)[seed // PER_SERVER % 2]) as server:
            for _ in range(PER_SERVER):
                with in_process(server, fork_server, tmp_path, f"place{seed}") as one:
                    if seed % 4 == 3:
                        (one.folder / PAUSES).write_text("0.2")
                    outcome, script = play(one, seed, operations=15, is_patient=seed % 2 == 0)
                told = "\n".join([f"seed {seed}", *outcome.wrong, *map(str, outcome.stopped.items()), *script])
                assert not outcome.wrong and not outcome.stopped, told
                seed += 1
        print(f"{seed - SEED} histories", flush=True)
