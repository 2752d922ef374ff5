"""A transaction up to a table's edge writes after one that is newer than the edge; a commit older than both is in the
log and not yet visible when the chunk is read. The chunk sees both, and its replay begins before both: all that follows
must be replayed, or the row goes back or is lost (docs/decisions/0022).
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer
from support.waiting import until


@pytest.fixture
def running(fork_server: ForkServer, tmp_path: Path) -> Iterator[InProcess]:
    with PostgresServer(18) as server, in_process(server, fork_server, tmp_path, "passedover") as one:
        one.sql("CREATE SCHEMA s")
        one.sql("CREATE TABLE s.u (id int PRIMARY KEY, v int)")
        one.start()
        one.settle()
        yield one


def ghost(one: InProcess, name: str) -> None:
    one.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    one.sql("SELECT pg_reload_conf()")
    time.sleep(0.5)


CASES = {
    "update": ("UPDATE s.t SET v = 2 WHERE id = 1", "UPDATE s.t SET v = 3 WHERE id = 1"),
    "delete": ("DELETE FROM s.t WHERE id = 1", "INSERT INTO s.t VALUES (1, 3)"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_older_transaction_s_change_stays_above_a_newer_one_s(running: InProcess, case: str) -> None:
    newer, older = CASES[case]
    one = running
    for session in ("", "old", "new"):
        one.sql("SET synchronous_commit = local", session)
    one.sql("BEGIN", "old")
    one.sql("SELECT pg_current_xact_id()", "old")
    one.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)")
    one.sql("INSERT INTO s.t VALUES (1, 1)")

    def added() -> bool:
        return any(t.schema.table_name == "t" for t in one.turn().tables.values())

    until(added, "s.t is captured")
    ghost(one, "ghost")
    one.sql("SET synchronous_commit = on", "hanging")
    hanging = one.session("hanging")
    thread = threading.Thread(target=lambda: hanging.execute("INSERT INTO s.u VALUES (1, 1)"))
    thread.start()
    time.sleep(1)
    assert thread.is_alive()
    one.sql(newer, "new")
    one.sql(older, "old")
    one.sql("COMMIT", "old")

    def read() -> bool:
        state = one.turn()
        table = next(t.table_id for t in state.tables.values() if t.schema.table_name == "t")
        mine = [s.tables[table] for s in state.snapshots.values() if table in s.tables]
        return bool(mine) and all(s.finished is not None for s in mine)

    until(read, "s.t is read")
    assert thread.is_alive(), "the older commit was visible too early"
    ghost(one, "")
    thread.join(10)
    verdict = verify(one, one.settle())
    assert not verdict.wrong
