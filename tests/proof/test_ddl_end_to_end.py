"""DDL without row events under the whole product: Spark, Delta and Iceberg, SIGKILL between the statements.

Directed scenarios of each class in one Replicator, then a round of the fuzzer in the same; source and target are
compared by readers that are not ours. `tests/soak/test_soak_ddl_end_to_end.py` runs all scenarios, and more rounds.
"""

from pathlib import Path

import pytest

from support.ddl.end_to_end import directed, fuzz, over
from support.ddl.scenarios import Pack, read
from support.postgres import PostgresServer
from support.versions import turns

NAMES = {
    "4-recreated-other-types",
    "5-leaf-nothing",
    "7-out-and-back-own",
    "9-drop-expression",
    "10-truncate-then-attach-filled",
    "11-detach-write-attach",
    "12-label-renamed",
    "13-swapped",
    "0-column-dropped-and-added",
    "21-column-that-differs-only-in-case",
    "21-key-that-differs-only-in-case",
}
"""Of each finding one that shows most."""
SEEDS = (7,)
CASES = (("delta", "Evolve"), ("iceberg", "EvolveAdditive"))


@pytest.mark.timeout(900)
@pytest.mark.turn(2, 4)  # whole drivers: nearly a minute of CPU
@pytest.mark.postgres(18)
@pytest.mark.parametrize(("format", "policy"), turns(*CASES))
def test_source_and_target_are_equal_or_the_table_is_stopped_by_name_and_repaired(
    postgres: PostgresServer, tmp_path: Path, format: str, policy: str
) -> None:
    scenarios = [scenario for scenario in read() if scenario.name in NAMES]
    assert len(scenarios) == len(NAMES)
    pack = Pack.of(scenarios)
    with over(postgres, tmp_path, format, pack, policy) as whole:
        whole.restarts = 1
        stopped = directed(whole, pack, "killed")
        assert len(stopped) < len(NAMES)
        for seed in SEEDS:
            fuzz(whole, seed, operations=8)
        whole.stop()
