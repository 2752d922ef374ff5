"""The repairs that docs/operations.md names for a stream whose position is lost, executed: lost, repaired, equal.

On the product without a JVM (`support.ddl.in_process`), with the commands that the document shows and with what the
operator hands to a driver instead. Sources are lost as they are lost in life: the slot is dropped, an older copy of the
data is put back, a standby is promoted, the tables come back in another server.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer, standby_of
from support.repairs import copied, disconnect, equal, fill, lose_slot, refused, resync_all, with_empty_log
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.manifest import load


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """For tests that stop it."""
    with PostgresServer(14) as started:
        yield started


def snapshots(one: InProcess) -> dict[str, int]:
    """Number of tables by id, of those that read whole tables; `initial` ones count by their kind."""
    assert one.driver is not None
    found: dict[str, int] = {}
    for key, snapshot in one.driver.journal.refresh().snapshots.items():
        name = "initial" if key.startswith("initial-") else key
        found[name] = found.get(name, 0) + len(snapshot.tables)
    return found


@pytest.mark.timeout(180)
def test_after_position_lost_the_command_starts_all_over(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_process(server, fork_server, tmp_path, "lost") as one:
        copied(one)
        lose_slot(one)
        refused(
            one, "PositionLost", "`tailrace resync -f <manifest> --all`", "create a SnapshotRequest with resync: true"
        )
        resync_all(one)
        ident = capsys.readouterr().out.split(":")[0]
        one.start()
        equal(one)
        assert snapshots(one) == {"initial": 2, ident: 2}, "one snapshot, which can be followed by the command's id"


REQUEST = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest"}


def hand_over(one: InProcess, uid: str) -> None:
    """As the operator puts it into the driver's ConfigMap."""
    spec = {"replicator": one.replicator.metadata.name, "tables": ["*.*"], "resync": True, "chunkRows": 5}
    document = {**REQUEST, "metadata": {"name": "again", "namespace": "team", "uid": uid}, "spec": spec}
    (one.folder / "resync.yaml").write_text(json.dumps(document))


def ask_again(one: InProcess, uid: str) -> tuple[str, ...]:
    """The operator tells the running driver of the request, as of any other."""
    assert one.driver is not None
    request = load(one.folder / "resync.yaml").requests[0]
    answer = one.driver.control.request(uid, SnapshotBody(name=request.metadata.name, spec=request.spec))
    return answer.tables


@pytest.mark.timeout(180)
def test_a_table_that_was_stopped_or_is_unfit_does_not_hold_up_the_others(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(server, fork_server, tmp_path, "unfit") as one:
        one.arguments = ("--resync", str(one.folder / "resync.yaml"))
        copied(one)
        lose_slot(one)
        one.sql("ALTER TABLE s.two DROP CONSTRAINT two_pkey")
        one.sql("CREATE TABLE s.three (id int PRIMARY KEY)")
        hand_over(one, "first")
        one.start()
        verdict = verify(one, one.settle())
        assert not verdict.wrong and list(verdict.stopped) == ["s.two"] and "NoKey" in verdict.stopped["s.two"]
        assert ask_again(one, "first") == ("s.one", "s.three")
        one.sql("ALTER TABLE s.two ADD PRIMARY KEY (id)")
        equal(one)


@pytest.mark.timeout(180)
def test_the_request_is_not_complete_before_a_locked_table_is_copied(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(server, fork_server, tmp_path, "locked") as one:
        one.arguments = ("--resync", str(one.folder / "resync.yaml"))
        copied(one)
        lose_slot(one)
        one.sql("CREATE TABLE s.three (id int PRIMARY KEY); INSERT INTO s.three VALUES (1), (2)")
        one.sql("BEGIN; LOCK TABLE s.three IN SHARE MODE", "holder")
        hand_over(one, "first")
        one.start()
        for _ in range(3):
            one.look()
        assert one.turn().snapshots["first"].ended is None
        one.sql("ROLLBACK", "holder")
        equal(one)
        assert sorted(ask_again(one, "first")) == ["s.one", "s.three", "s.two"]
        assert snapshots(one) == {"initial": 2, "first": 3}


@pytest.mark.timeout(240)
def test_a_source_put_back_from_an_older_copy_is_started_over(
    own_server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(own_server, fork_server, tmp_path, "restored") as one:
        copied(one)
        disconnect(one)
        own_server.stop()
        backup = tmp_path / "backup"
        subprocess.run(["cp", "-a", own_server.data_dir, backup], check=True)
        own_server.start()
        one.sql("UPDATE s.one SET a = 'never happened'")
        one.start()
        one.settle()
        one.stop()
        disconnect(one)
        own_server.stop()
        shutil.rmtree(own_server.data_dir)
        subprocess.run(["cp", "-a", backup, own_server.data_dir], check=True)
        own_server.start()
        refused(one, "PositionLost", "the source was restored to an older state")
        resync_all(one)
        one.start()
        equal(one)


@pytest.mark.timeout(240)
def test_a_promoted_standby_is_started_over(
    own_server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(own_server, fork_server, tmp_path, "promoted") as one:
        copied(one)
        disconnect(one)
        with standby_of(own_server) as standby:
            assert standby.execute("SELECT pg_promote()") == [(True,)]
            one.server = standby
            one.sql("UPDATE s.one SET a = 'on the new timeline'")
            refused(one, "PositionLost", "the source is on timeline 2, the change log was created on 1")
            resync_all(one)
            one.start()
            equal(one)
            one.stop()
            one.start()
            equal(one)
            one.stop()
            disconnect(one)
        one.server = own_server


@pytest.mark.timeout(240)
def test_a_source_that_came_back_as_another_server_takes_an_empty_change_log(
    own_server: PostgresServer, server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(own_server, fork_server, tmp_path, "moved") as one:
        copied(one)
        server.execute("CREATE DATABASE moved")
        disconnect(one)
        one.server = server
        fill(one)  # as a dump would
        refused(one, "SourceRefused", "system identifier")
        resync_all(one)
        refused(one, "SourceRefused", "system identifier", "set storage.location to an empty folder")
        with_empty_log(one)
        equal(one)
        one.stop()
