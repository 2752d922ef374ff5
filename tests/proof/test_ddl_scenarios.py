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


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


def _parameters() -> Iterator[object]:
    """All that can be packed, with running and with stopped processes; the others once."""
    for timing in ("between", "stopped"):
        for pack in packs(read(), timing):
            alone = len(pack.scenarios) == 1
            if not alone or timing == "between" or "between" not in pack.scenarios[0].timings:
                name = pack.scenarios[0].name if alone else f"{len(pack.scenarios)}-scenarios"
                yield pytest.param(pack, timing, id=f"{timing}-{name}")


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
