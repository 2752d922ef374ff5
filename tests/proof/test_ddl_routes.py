"""Partitions that come and go: PostgreSQL 14 goes on sending their rows as before; 15 is the first that does not."""

from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import in_process
from support.ddl.scenarios import packs, read
from support.ddl.script import run
from support.postgres import PostgresServer
from support.versions import turns


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("major", "timing"), turns((14, "between"), (14, "over"), (14, "stopped"), (15, "over")))
def test_rows_of_partitions_go_where_they_belong(
    fork_server: ForkServer, tmp_path: Path, major: int, timing: str
) -> None:
    wrong: list[str] = []
    with PostgresServer(major) as server:
        for number, pack in enumerate(packs([s for s in read() if s.name.startswith("14-")], timing)):
            with in_process(server, fork_server, tmp_path, f"routes{number}", **pack.spec) as one:
                outcome = run(one, list(pack.script(timing)))
            wrong += pack.by_scenario([*outcome.wrong, *map(str, outcome.stopped.items())])
            server.execute("DROP PUBLICATION IF EXISTS given")
    assert not wrong, "\n".join(wrong)
