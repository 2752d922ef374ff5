"""What `tailrace run` does when something around it fails: a table, or the source."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.postgres import PostgresServer
from support.proof.process import Deployment, status

SOMETHING_FAILED = 1


@pytest.fixture
def deployment(postgres: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    place = {"host": postgres.host, "port": postgres.port, "database": "postgres", "username": "postgres"}
    source: dict[str, object] = {"type": "postgresql", **place}
    made = Deployment(tmp_path / "home", source, spec={"tables": {"include": ["public.*"]}})
    yield made
    made.close()


def tables(deployment: Deployment) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in (status(deployment) or {"tables": []})["tables"]}


def states(deployment: Deployment) -> dict[str, str]:
    return {name: table["state"] for name, table in tables(deployment).items()}


@pytest.mark.timeout(600)
def test_tables_that_fail_stop_alone_by_name_and_a_source_that_is_away_is_told_until_it_is_back(
    postgres: PostgresServer, deployment: Deployment
) -> None:
    postgres.execute("CREATE TABLE good (id int PRIMARY KEY, v int); INSERT INTO good VALUES (1, 1)")
    postgres.execute("CREATE TABLE keyless (id int); CREATE TABLE taken (id int PRIMARY KEY)")
    foreign = deployment.lake / "public" / "taken"
    foreign.mkdir(parents=True)
    write_deltalake(foreign, pa.table({"id": [7]}))
    run = deployment.start()
    wanted = {"public.good": "REPLICATING", "public.keyless": "STOPPED", "public.taken": "STOPPED"}
    run.until(lambda: states(deployment) == wanted, 200, "one table to replicate and two to stop")
    read = re.findall(r"chunk .*: \d+ rows in .*table=public.good", run.output.read_text())
    assert len(read) == 1, "so small a table is one chunk"
    found = tables(deployment)
    assert found["public.keyless"]["fault"]["name"] == "NoKey"
    assert "PRIMARY KEY" in found["public.keyless"]["fault"]["fix"]
    assert found["public.taken"]["fault"]["name"] == "TargetRefused"
    assert DeltaTable(foreign).version() == 0

    postgres.stop("immediate")
    run.until(lambda: named(deployment) == "CaptureEnded", 60, "the end of capture to be told")
    run.until(lambda: f"cannot connect to {postgres.host}:{postgres.port}" in words(deployment), 60, "its reason")
    assert (status(deployment) or {})["state"] == "Failing"
    postgres.start()
    postgres.execute("INSERT INTO good VALUES (2, 2)")
    run.until(lambda: named(deployment) == "", 90, "capture to work again")
    run.until(lambda: tables(deployment)["public.good"]["counters"]["inserts"] == 1, 90, "the row written since")
    assert (status(deployment) or {})["capture"]["alive"]

    family = run.family()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == 0, run.tail()
    assert psutil.wait_procs(family, timeout=20)[1] == []

    once = deployment.start("--once")
    assert once.wait(200) == SOMETHING_FAILED, once.tail()
    assert "public.keyless" in once.tail() and "NoKey" in once.tail()


def named(deployment: Deployment) -> str:
    document = status(deployment)
    return "?" if document is None else (document["fault"] or {"name": ""})["name"]


def words(deployment: Deployment) -> str:
    return str((status(deployment) or {"message": ""})["message"])
