"""What `tailrace run` does when something around it fails: a table, or the source."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support import lineage
from support.postgres import LOCAL_TRUST, PostgresServer
from support.process import Program
from support.proof.process import Deployment, status

SOMETHING_FAILED, MANIFEST, CONFIGURATION = 1, 2, 10


@pytest.fixture
def deployment(postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
    source: dict[str, object] = {"type": "postgresql", **place}
    made = Deployment(tmp_path / "home", source, spec={"tables": {"include": ["public.*"]}})
    yield made
    made.close()


@pytest.fixture
def hook(tmp_path: Path, deployment: Deployment) -> Iterator[lineage.Receiver]:
    """The receiver of the deployment's notifications."""
    (tmp_path / "key").write_text("a key of more than sixteen bytes")
    with lineage.receiver() as made:
        asked = {"url": f"{made.url}/hook", "credentials": {"file": str(tmp_path / "key")}}
        deployment.spec["notifications"] = asked
        yield made


def stops(hook: lineage.Receiver) -> list[tuple[str, str, str]]:
    """Table, error and part of each event about a stop."""
    told = [event for event in hook.events if event["type"] == "dev.tailrace.table.stopped"]
    return sorted((event["subject"], event["data"]["error"], event["data"]["where"]) for event in told)


def tables(deployment: Deployment) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in (status(deployment) or {"tables": []})["tables"]}


def states(deployment: Deployment) -> dict[str, str]:
    return {name: table["state"] for name, table in tables(deployment).items()}


@pytest.mark.timeout(600)
def test_tables_that_fail_stop_alone_and_a_source_that_is_away_or_refuses_a_password_is_told_until_it_is_back(
    postgres: PostgresServer, deployment: Deployment, hook: lineage.Receiver
) -> None:
    postgres.execute("CREATE TABLE good (id int PRIMARY KEY, v int); INSERT INTO good VALUES (1, 1)")
    postgres.execute("CREATE TABLE keyless (id int); CREATE TABLE taken (id int PRIMARY KEY)")
    foreign = deployment.lake / "public" / "taken"
    foreign.mkdir(parents=True)
    write_deltalake(foreign, pa.table({"id": [7]}))
    password = with_password(postgres, deployment)
    run = deployment.start()
    wanted = {"public.good": "REPLICATING", "public.keyless": "STOPPED", "public.taken": "STOPPED"}
    run.until(lambda: states(deployment) == wanted, 200, "one table to replicate and two to stop")
    read = re.findall(r"chunk .*: \d+ rows in .*table=public.good", run.output.read_text())
    assert len(read) == 1, "so small a table is one chunk"
    found = tables(deployment)
    assert found["public.keyless"]["fault"]["name"] == "NoKey"
    assert "PRIMARY KEY" in found["public.keyless"]["fault"]["fix"]
    assert found["public.taken"]["fault"]["name"] == "TargetRefused"
    assert [found[name]["fault"]["where"] for name in ("public.keyless", "public.taken")] == ["source", "target"]
    assert DeltaTable(foreign).version() == 0
    stopped = [("public.keyless", "NoKey", "source"), ("public.taken", "TargetRefused", "target")]
    run.until(lambda: stops(hook) == stopped, 30, "both to be told of by notifications")

    postgres.stop("immediate")
    run.until(lambda: named(deployment) == "CaptureEnded", 60, "the end of capture to be told")
    run.until(lambda: f"cannot connect to {postgres.host}:{postgres.port}" in words(deployment), 60, "its reason")
    failing = status(deployment) or {}
    assert (failing["state"], failing["fault"]["where"]) == ("Failing", "source")
    postgres.start()
    postgres.execute("INSERT INTO good VALUES (2, 2)")
    run.until(lambda: named(deployment) == "", 90, "capture to work again")
    run.until(lambda: tables(deployment)["public.good"]["counters"]["inserts"] == 1, 90, "the row written since")
    assert (status(deployment) or {})["capture"]["alive"]

    postgres.execute("ALTER ROLE copier PASSWORD 'second'")
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'copier'")
    run.until(lambda: "AuthenticationFailed" in words(deployment), 30, "the refused password to be told")
    password.write_text("second")
    postgres.execute("INSERT INTO good VALUES (3, 3)")
    run.until(lambda: named(deployment) == "", 60, "capture to work with the new password")
    run.until(lambda: tables(deployment)["public.good"]["counters"]["inserts"] == 2, 60, "the row written since")

    family = run.family()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == 0, run.tail()
    assert psutil.wait_procs(family, timeout=20)[1] == []
    assert_ends_with_names(run)

    once = deployment.start("--once")
    assert once.wait(200) == SOMETHING_FAILED, once.tail()
    assert_ends_with_names(once)
    assert stops(hook) == stopped, "each once, whatever was tried and started again"


def with_password(postgres: PostgresServer, deployment: Deployment) -> Path:
    """The file of the password that the server wants from the source's user."""
    postgres.execute("CREATE ROLE copier SUPERUSER LOGIN REPLICATION PASSWORD 'first'")
    postgres.set_hba(("host all copier 127.0.0.1/32 scram-sha-256", *LOCAL_TRUST))
    path = deployment.folder.with_name("password")
    path.write_text("first")
    deployment.source |= {"username": "copier", "passwordFile": str(path)}
    return path


def assert_ends_with_names(run: Program) -> None:
    """The last lines: each stopped table with its fix, then all of them."""
    keyless, taken, last = run.output.read_text().splitlines()[-3:]
    assert "table public.keyless is stopped: NoKey" in keyless and ". Fix: " in keyless and "ALTER TABLE" in keyless
    assert "table public.taken is stopped: TargetRefused" in taken and "Choose another target" in taken
    assert "2 tables stopped or failing: public.keyless, public.taken" in last


@pytest.mark.parametrize("arguments", [(), ("--once",)])
def test_a_target_that_is_a_file_and_places_one_inside_the_other_are_refused_in_seconds(
    postgres: PostgresServer, deployment: Deployment, arguments: tuple[str, ...]
) -> None:
    deployment.write_manifest()
    deployment.lake.touch()
    run = deployment.start(*arguments)
    assert run.wait(60) == CONFIGURATION, run.tail()
    assert "StorageRefused" in run.tail() and str(deployment.lake) in run.tail() and not deployment.state.exists()
    deployment.lake.unlink()
    deployment.spec["storage"] = {"location": deployment.lake.as_uri() + "/log"}
    run = deployment.start(*arguments)
    assert run.wait(60) == MANIFEST, run.tail()
    assert "one is inside the other" in run.tail() and not deployment.lake.exists()


@pytest.mark.postgres(18, wal_level="replica")
def test_a_wrong_wal_level_is_told_as_such_and_doctor_is_not_ready_beside_a_failure(
    postgres: PostgresServer, deployment: Deployment
) -> None:
    run = deployment.start("--once")
    assert run.wait(120) == CONFIGURATION, run.tail()
    assert "ALTER SYSTEM SET wal_level = 'logical'" in run.tail() and "no table matches" not in run.tail()
    postgres.restart(settings={"wal_level": "logical"})
    postgres.execute("CREATE TABLE good (id int PRIMARY KEY); CREATE TABLE keyless (id int)")
    done = deployment.command("doctor", "-f", str(deployment.manifest))
    assert (done.returncode, "fail public.keyless" in done.stdout) == (CONFIGURATION, True), done.stdout
    assert done.stdout.endswith("not ready\n") and not deployment.lake.exists() and not deployment.log.exists()


CANARY = "CANARY-7f3a"


@pytest.mark.timeout(600)
def test_no_value_of_a_row_is_told(postgres: PostgresServer, deployment: Deployment) -> None:
    """Keys, a value that does not fit by snapshot and by log, a filter that the database refuses."""
    postgres.execute("CREATE TABLE good (id text PRIMARY KEY, v text)")
    postgres.execute(f"INSERT INTO good SELECT '{CANARY}' || n, '{CANARY}' FROM generate_series(1, 30) n")
    for table in ("unfit", "later"):
        postgres.execute(f"CREATE TABLE {table} (id text PRIMARY KEY, at timestamp)")
    postgres.execute(f"INSERT INTO unfit VALUES ('{CANARY}', '54321-01-02')")
    deployment.spec["options"] = [{"match": "*.*", "onUnsupported": "Fail"}]
    deployment.requests = [
        _request("filtered", tables=["public.good"], where="v::int > 0"),
        _request("in-chunks", tables=["public.good"], chunkRows=4),
    ]
    run = deployment.start()
    ended = {"filtered": "Failed", "in-chunks": "Completed"}
    run.until(lambda: ended.items() <= shots(deployment).items(), 200, "the snapshots that were asked for")
    postgres.execute(f"INSERT INTO later VALUES ('{CANARY}', '54321-01-02')")
    run.until(lambda: states(deployment).get("public.later") == "STOPPED", 60, "the log to stop a table")
    document = json.dumps(status(deployment))
    assert run.stop() == 0, run.tail()
    errors = [
        event
        for record in sorted((deployment.log / "journal").glob("[0-9]*.json"))
        for event in json.loads(record.read_text())["events"]
        if event["kind"] in ("table-stopped", "snapshot-ended") or event.get("error")
    ]
    told = {"status": document, "log": run.output.read_text(), "journal": json.dumps(errors)}
    assert all("timestamp #" in text for text in told.values()), told["journal"]
    assert {name for name, text in told.items() if CANARY in text or "54321" in text} == set()


def _request(name: str, **spec: object) -> dict[str, object]:
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest"}
    return {**document, "metadata": {"name": name}, "spec": {"replicator": "proof", **spec}}


def shots(deployment: Deployment) -> dict[str, str]:
    return {shot["name"]: shot["state"] for shot in (status(deployment) or {"snapshots": []})["snapshots"]}


def named(deployment: Deployment) -> str:
    document = status(deployment)
    return "?" if document is None else (document["fault"] or {"name": ""})["name"]


def words(deployment: Deployment) -> str:
    return str((status(deployment) or {"message": ""})["message"])
