"""Steps of repairs that several tests of them take, with the commands that docs/operations.md shows."""

import shutil

import pytest

from support.ddl.in_process import InProcess, Refused
from support.ddl.lake import InMemoryLake
from support.ddl.verify import verify
from tailrace.cli import main as cli

TABLES = ("one", "two")


def fill(one: InProcess) -> None:
    one.sql("CREATE SCHEMA s")
    for name in TABLES:
        one.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, a text)")
        one.sql(f"INSERT INTO s.{name} SELECT g, 'a' || g FROM generate_series(1, 20) g")


def copied(one: InProcess) -> None:
    """Everything is copied once, and the Replicator is stopped."""
    fill(one)
    one.start()
    one.settle()
    one.stop()


def lose_slot(one: InProcess) -> None:
    _drop_slots(one)
    one.sql("UPDATE s.one SET a = a || '!'")
    one.sql("DELETE FROM s.two WHERE id % 3 = 0")


def _drop_slots(one: InProcess) -> None:
    of_ours = "SELECT slot_name::text FROM pg_replication_slots WHERE database = %s"
    for (name,) in one.server.execute(of_ours, (one.database,)):
        one.server.drop_slot(name)


def refused(one: InProcess, *words: str) -> str:
    """A start ends by these words; returns all of them."""
    with pytest.raises(Refused) as told:
        one.start()
    for word in words:
        assert word in str(told.value), told.value
    one.stop(kill=True)
    return str(told.value)


def equal(one: InProcess) -> None:
    """After more changes."""
    one.sql("INSERT INTO s.one VALUES (1000, '+') ON CONFLICT (id) DO UPDATE SET a = one.a || '+'")
    verdict = verify(one, one.settle())
    assert not verdict.wrong and not verdict.stopped, verdict


def disconnect(one: InProcess) -> None:
    """Before the server goes."""
    for session in one.sessions:
        session.close()


def resync_all(one: InProcess) -> None:
    """The command of the document."""
    command = ["resync", "-f", str(one.manifest), "--all", "--run-dir", str(one.folder / "driver")]
    assert cli.main(command) == 0


def with_empty_log(one: InProcess, readable: bool = True) -> None:
    """`Starting with an empty change log`, step by step; `readable` is the present one."""
    dropped = cli.main(["drop", "-f", str(one.manifest), "--run-dir", str(one.folder / "driver")])
    assert (dropped == 0) == readable
    # What it names as kept, because the log proves nothing (any more), is dropped by hand.
    _drop_slots(one)
    for (name,) in one.session().execute("SELECT pubname::text FROM pg_publication").fetchall():
        one.sql(f'DROP PUBLICATION "{name}"')
    shutil.move(one.folder / "log", one.folder / "former-log")
    new_target(one)


def new_target(one: InProcess) -> None:
    """As if the old tables were moved away."""
    one.lake = InMemoryLake(one.folder / "new-lake")
    one.spec = one.spec | {"target": {"type": "delta", "location": (one.folder / "new-lake").as_uri()}}
    one.start()
