"""Programs move from one server to a newer one, and back: `tailrace cutover`, killed between its steps.

Servers and commands are real, the driver is in the test's process; `tests/soak/test_soak_cutover.py` has it as a
process, too.
"""

import threading
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from support.database_copies import begin
from support.moves import Program, Server, everything, fill, force, only_read, pair, place_of, quiet, sales
from support.mysql import MysqlServer
from support.served import Served
from support.versions import turns
from tailrace.driver.asking.declared_cutover import DeclaredCutover
from tailrace.errors import CutOver, TailraceError
from tailrace.places import Places

USER = "tailrace"
OF_MYSQL = ("REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN, PROCESS", "CONNECTION_ADMIN")
OF_MARIADB = ("REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR, PROCESS", "READ_ONLY ADMIN")
"""The rights to read a server, and to write to one that is read-only."""


def prepare(*servers: Server) -> None:
    """With tables, and in MySQL with a user that has the rights of docs/cutover.md but for the way back."""
    fill(*servers)
    for server in servers:
        if isinstance(server, MysqlServer):
            reads, _ = OF_MARIADB if server.mariadb else OF_MYSQL
            server.script(
                f"CREATE USER {USER}", f"GRANT {reads} ON *.* TO {USER}",
                f"GRANT ALL ON shop.* TO {USER}", f"GRANT ALL ON _tailrace.* TO {USER}",
            )  # fmt: skip


def move(folder: Path, source: Server, target: Server, initial: bool = True) -> Served:
    folder.mkdir()
    user = USER if isinstance(source, MysqlServer) else None
    into: dict[str, Any] = {} if isinstance(target, MysqlServer) else {"database": "postgres"}
    copy = begin(place_of(source, user), target, folder, user, adopt=True, initial=initial, **into)
    return Served(copy)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("product", turns("postgresql", "mysql", "mariadb"))
def test_programs_move_to_a_newer_server_and_back(product: str, tmp_path: Path) -> None:
    old, new = pair(product)
    with old, new:
        prepare(old, new)
        program = Program(old)
        try:
            program.sells()
            there = move(tmp_path / "there", old, new)
            with there.running():
                level(there)
                refused_while_the_program_writes(there, program, quiet(old))
                program.server = None
                only_read(old)
                done_once_whoever_is_killed(there, old, new)
                force(old, "INSERT INTO shop.item (id, name) VALUES (1000000, 'late')")
                with pytest.raises(CutOver):
                    there.copy.until(lambda _: False, work=True)
            code, said = there.command("status", works=False)
            assert code == 0 and "Succeeded" in said and "CutOver at " in said, said
            code, said = there.command("drop", "--data", works=False)
            assert code == 0, said
            force(old, "DELETE FROM shop.item WHERE id = 1000000")
            assert everything(old) == everything(new) != []
            back = move(tmp_path / "back", new, old, initial=False)
            may_write(back, old)
            with back.running():
                # The way back begins before the program writes again.
                level(back)
                program.continues(new)
                program.server = None
                back.copy.until(lambda _: sales(old) == sales(new), work=True)
                only_read(new)
                done_once_by_the_manifest(back)
                assert everything(old) == everything(new)
                only_read(old, now=False)
                program.continues(old)
        finally:
            program.ended = True


def level(moved: Served) -> None:
    moved.copy.until(lambda state: len(state.tables) == 2 and moved.copy.driver.level(state), work=True)


def refused_while_the_program_writes(there: Served, program: Program, statement: str) -> None:
    """By name; nothing has happened."""
    code, said = there.command("cutover", "--check")
    assert (code, said.strip().splitlines()[-1]) == (0, "ready for the cutover"), said
    code, said = there.command("cutover", "--writers-stopped", "--timeout", "3s")
    assert code == 1 and ("StillWritten" in said or "do not hold all of record" in said), said  # a busy machine is late
    code, said = there.command("cutover", "--timeout", "1s")
    assert code == 1 and "is not read-only" in said and statement in said, said
    code, said = there.command("cutover", "--verified-within", "30s")
    assert code == 2 and "it must be at least 1m" in said, said
    program.sells()


def done_once_whoever_is_killed(there: Served, source: Server, target: Server) -> None:
    for seam in ("cutover.quiet=kill", "cutover.counters=kill", "cutover.done=kill"):
        code, said = there.command("cutover", seams=seam)
        assert code == -9, said
    code, said = there.command("cutover", "--json", works=False)
    assert code == 0 and '"next":' in said and "completed before" in said, said
    assert sales(source) == sales(target)


def done_once_by_the_manifest(back: Served) -> None:
    """By a driver that finds `cutover` in its spec; every other one finds that it is done."""
    spec = back.copy.document["spec"]
    spec["cutover"] = {} if spec["source"]["type"] == "postgresql" else {"acceptMissing": True}
    asked = back.copy.replicator
    control = back.copy.driver.control
    for again in (False, True):
        cutover = DeclaredCutover(control, Places(asked.spec), replicator=lambda: asked, wait=threading.Event().wait)
        thread = Attempt(cutover)
        back.works_until(thread.ended)
        told = cutover.status()
        assert isinstance(thread.outcome, CutOver), (thread.outcome, told)
        assert told is not None and told.fault is None
        assert ("completed before" if again else "done: programs may write to ") in told.message


class Attempt(threading.Thread):
    """One attempt, beside the driver's work."""

    def __init__(self, cutover: DeclaredCutover) -> None:
        super().__init__(daemon=True)
        self.cutover = cutover
        self.outcome: TailraceError | None = None
        self.start()

    @override
    def run(self) -> None:
        try:
            self.cutover.step()
        except TailraceError as error:
            self.outcome = error

    def ended(self) -> bool:
        return not self.is_alive()


def may_write(back: Served, old: Server) -> None:
    """The user of Tailrace, although the server is read-only for others; a right that is missing is named."""
    if isinstance(old, MysqlServer):
        _, right = OF_MARIADB if old.mariadb else OF_MYSQL
        code, said = back.command("doctor", works=False)
        assert code != 0 and f"GRANT {right} ON *.* TO" in said, said
        old.execute(f"GRANT {right} ON *.* TO {USER}")
