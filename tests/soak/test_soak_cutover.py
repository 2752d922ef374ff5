"""A move of programs from one server to a newer one, and back, by whole drivers: `tailrace cutover`, killed between its
steps, a controller that starts the driver again, and MySQL 8.0, which cannot be a target.

`tests/proof/test_cutover.py` has the driver in the test's process.
"""

from pathlib import Path
from typing import Any

import pytest

from demo.ports import free_port
from support.galera import node, ready, state_of
from support.moves import Program, Server, fill, force, only_read, pair, place_of, quiet, sales
from support.mysql import MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.proof.process import ENVIRONMENT, Deployment, forked, status
from support.seam_names import checked
from support.waiting import until
from tailrace import sources
from tailrace.contract.resources import SourceSpec
from tailrace.sources.api import Source


class Move:
    """One direction."""

    def __init__(self, folder: Path, source: Server, target: Server, **spec: object) -> None:
        self.source, self.target = source, target
        more = {"tables": {"include": ["shop.*"]}, "apply": {"freshness": "300ms"}} | spec
        into = {"target": {**place_of(target), "adopt": True}}
        self.deployment = Deployment(folder, place_of(source), spec=more | into)
        self.deployment.write_manifest()

    def run(self) -> Any:
        ready = self.deployment.command("doctor", "-f", str(self.deployment.manifest))
        assert ready.returncode == 0, ready.stdout
        run = self.deployment.start()
        run.until(self.is_level, 120, "everything is replicated")
        return run

    def is_level(self) -> bool:
        found = status(self.deployment)
        tables = [] if found is None else found["tables"]
        return len(tables) == 2 and all(table["state"] == "REPLICATING" for table in tables)

    def asks_for_it(self) -> None:
        """In the manifest, as in Git."""
        self.deployment.spec["cutover"] = {"acceptMissing": True}
        self.deployment.write_manifest()
        here = ["-f", str(self.deployment.manifest), "--run-dir", str(self.deployment.state)]
        done = self.deployment.command("reload", *here)
        assert done.returncode == 0, done.stderr
        until(
            lambda: "is not read-only" in str((status(self.deployment) or {})["cutover"]), "what it waits for", pause=1
        )

    def cutover(self, *arguments: str, seams: str = "") -> tuple[int, str]:
        output = self.deployment.folder / "cutover.log"
        output.write_text("")
        here = ["-f", str(self.deployment.manifest), "--run-dir", str(self.deployment.state)]
        environment = ENVIRONMENT | {"TAILRACE_SEAMS": checked(seams)}
        return forked(["cutover", *here, *arguments], environment, output).wait(120), output.read_text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("product", ["postgresql", "mysql", "mariadb"])
def test_programs_move_to_a_newer_server_and_back(product: str, tmp_path: Path) -> None:
    old, new = pair(product)
    with old, new:
        fill(old, new)
        program = Program(old)
        there, back = Move(tmp_path / "there", old, new), Move(tmp_path / "back", new, old, snapshot={"initial": False})
        try:
            program.sells()
            run = there.run()
            refused_while_the_program_writes(there, program)
            program.server = None
            only_read(old)
            done_once_whoever_is_killed(there)
            ended_for_good(there, run)
            # The way back begins before the program writes again.
            run = back.run()
            program.continues(new)
            program.server = None
            until(lambda: sales(old) == sales(new), "the way back", pause=1)
            back.asks_for_it()
            assert run.poll() is None, "it waits for the source"
            only_read(new)
            assert run.wait(120) == 10 and "CutOver" in run.tail(), run.tail()
            run = back.deployment.start()
            assert run.wait(120) == 10 and "CutOver" in run.tail(), run.tail()
            only_read(old, now=False)
            program.continues(old)
        finally:
            program.ended = True
            there.deployment.close()
            back.deployment.close()


@pytest.mark.timeout(600)
def test_programs_leave_a_mysql_that_is_too_old_for_a_way_back(tmp_path: Path) -> None:
    with MysqlServer("mysql-8.0", sql_mode="") as old, MysqlServer(MYSQL, sql_mode="") as new:
        fill(old, new)
        program = Program(old)
        move = Move(tmp_path / "move", old, new)
        try:
            program.sells()
            run = move.run()
            refused_while_the_program_writes(move, program)
            assert run.poll() is None
            program.server = None
            only_read(old)
            done_once_whoever_is_killed(move)
            ended_for_good(move, run)
            program.continues(new)
        finally:
            program.ended = True
            move.deployment.close()


def refused_while_the_program_writes(move: Move, program: Program) -> None:
    """By name; nothing has happened."""
    code, said = move.cutover("--check")
    assert (code, said.strip().splitlines()[-1]) == (0, "ready for the cutover"), said
    code, said = move.cutover("--writers-stopped", "--timeout", "3s")
    assert code == 1 and "StillWritten" in said, said
    code, said = move.cutover("--timeout", "1s")
    assert code == 1 and "is not read-only" in said and quiet(move.source) in said, said
    program.sells()


def done_once_whoever_is_killed(move: Move) -> None:
    for seam in ("cutover.quiet=kill", "cutover.counters=kill", "cutover.done=kill"):
        code, said = move.cutover(seams=seam)
        assert code == -9, said
    code, said = move.cutover("--json")
    assert code == 0 and '"next":' in said, said
    assert move.cutover("--json")[1].splitlines()[-1] == said.splitlines()[-1]
    assert sales(move.source) == sales(move.target)


def ended_for_good(move: Move, run: Any) -> None:
    """A controller that starts it again changes nothing, and neither does a row that comes late to the old server."""
    force(move.source, "INSERT INTO shop.item (id, name) VALUES (1000000, 'late')")
    assert run.wait(60) == 10 and "CutOver" in run.tail(), run.tail()
    if isinstance(move.source, MysqlServer):  # one of the two is enough
        again = move.deployment.start()
        assert again.wait(120) == 10 and "CutOver" in again.tail(), again.tail()
    force(move.source, "DELETE FROM shop.item WHERE id = 1000000")
    manifest, state = str(move.deployment.manifest), str(move.deployment.state)
    done = move.deployment.command("drop", "--data", "-f", manifest, "--run-dir", state, timeout=120)
    assert done.returncode == 0, done.stderr
    if isinstance(move.source, PostgresServer):
        assert move.source.execute("SELECT 1 FROM pg_replication_slots") == []
    assert sales(move.source) == sales(move.target)


def test_a_member_of_a_group_is_not_quiet_while_others_may_write() -> None:
    """Group Replication, with a user that has only the rights of docs/cutover.md."""
    ports = [free_port(), free_port()]
    with member(ports, 0) as source, member(ports, 1) as other:
        for server in (source, other):
            server.script(
                "SET SQL_LOG_BIN = 0", "CREATE USER tailrace",
                "GRANT REPLICATION SLAVE, REPLICATION CLIENT, PROCESS ON *.* TO tailrace",
                "RESET BINARY LOGS AND GTIDS",
            )  # fmt: skip
        source.script(
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
            "SET GLOBAL read_only = ON",
        )
        with opened(place_of(source, "tailrace")).session() as session:
            ((message, fix),) = session.writers(None, stopped=False).obstacles
            assert "may not see" in message
            source.execute(fix.split("`")[1] + " tailrace")
            assert session.writers(None, stopped=False).obstacles == (), "it is the only member"
            other.script(
                "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'tailrace' FOR CHANNEL 'group_replication_recovery'",
                "START GROUP_REPLICATION",
            )
            ((message, fix),) = session.writers(None, stopped=False).obstacles
            assert message == f"the source is one of several servers that programs may write to: {at(other)}"
            source.execute(fix.split("`")[1])
            assert session.writers(None, stopped=False).obstacles == ()


def test_a_member_of_a_galera_cluster_is_not_quiet_until_the_others_have_left() -> None:
    ports = [free_port() for _ in range(4)]
    with node(ports[:2]) as source, ready(source), opened(place_of(source)).session() as session:
        source.execute("SET GLOBAL read_only = ON")
        assert session.writers(None, stopped=False).obstacles == (), "it is the only member"
        with node(ports[2:], f"127.0.0.1:{ports[0]}", state_of(source)) as other, ready(other):
            other.script("CREATE DATABASE shop", "CREATE TABLE shop.item (id int PRIMARY KEY)")
            other.execute("INSERT INTO shop.item VALUES (1)")
            until(lambda: source.execute("SELECT id FROM shop.item") == [(1,)], "a program writes there")
            ((message, fix),) = session.writers(None, stopped=False).obstacles
            assert message == "the source is one of several servers that programs may write to: a Galera cluster of 2"
            assert "shut the other members down" in fix
            other.stop()
            until(lambda: not session.writers(None, stopped=False).obstacles, "the other member has left")
        assert source.execute("SELECT id FROM shop.item") == [(1,)], "alone, it still answers"


def opened(place: dict[str, object]) -> Source:
    return sources.open(SourceSpec.model_validate(place), "tailrace cutover", None)


def at(server: MysqlServer) -> str:
    return f"{server.host}:{server.port}"


def member(ports: list[int], number: int) -> MysqlServer:
    seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
    group: dict[str, str | int] = {
        "group_name": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
        "local_address": f"127.0.0.1:{ports[number]}",
        "group_seeds": seeds,
        "start_on_boot": "OFF",
        "ip_allowlist": "127.0.0.1",
        "recovery_get_public_key": "ON",
        "single_primary_mode": "OFF",
    }
    named = {f"loose_group_replication_{name}": value for name, value in group.items()}
    return MysqlServer(MYSQL, plugin_load_add="group_replication.so", report_host="127.0.0.1", **named)
