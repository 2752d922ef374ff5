"""DDL without row events, scenario by scenario: source = target, or stopped by name and equal after the repair."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import in_process
from support.ddl.scenarios import Pack, packs, read
from support.ddl.script import run
from support.postgres import PostgresServer

FOLLOWED = ("4-", "13-")
"""Findings whose scenarios end equal with nothing stopped."""
THIRDS = range(3)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


def _parameters() -> Iterator[object]:
    """All that can be packed, with running and with stopped processes, a third of it in each run; the others once."""
    packed, alone = [s for s in read() if not s.solo], [s for s in read() if s.solo]
    for timing in ("between", "stopped"):
        for third in THIRDS:
            for pack in packs(packed[third :: len(THIRDS)], timing):
                name = f"{timing}-{len(pack.scenarios)}-scenarios-{third}"
                yield pytest.param(pack, timing, id=name, marks=pytest.mark.turn(third, len(THIRDS)))
        for pack in packs(alone, timing):
            if timing == "between" or "between" not in pack.scenarios[0].timings:
                yield pytest.param(pack, timing, id=f"{timing}-{pack.scenarios[0].name}")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("pack", "timing"), list(_parameters()))
def test_source_and_target_are_equal_or_the_table_is_stopped_by_name(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path, pack: Pack, timing: str
) -> None:
    with in_process(server, fork_server, tmp_path, "ddl", **pack.spec) as one:
        outcome = run(one, list(pack.script(timing)), fix=pack.fix)
    stopped = pack.by_scenario([f"{name}: {why}" for name, why in outcome.stopped.items()])
    assert not outcome.wrong, "\n".join([*pack.by_scenario(outcome.wrong), "stopped:", *stopped])
    assert not [line for line in stopped if line.startswith(FOLLOWED)]
