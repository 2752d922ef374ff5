"""Cuts by the clock of a real driver, for minutes: they appear, the oldest goes, and tables that are added, dropped and
started over in between are in them or are said not to be. What is kept can be read to its last row."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import deltalake
import pytest
from pyiceberg.table import StaticTable

from support.postgres import PostgresServer
from support.proof.process import Deployment, status
from tailrace.cli.client import DriverClient
from tailrace.contract.driver import CutReport
from tailrace.driver.process.run_dir import RunFolder

KEEP, ROWS = 2, 200
CREATE = """
CREATE TABLE proof.{0} (id int PRIMARY KEY, v int);
INSERT INTO proof.{0} SELECT n, n FROM generate_series(1, {1}) n;
"""


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_cuts_by_the_clock_follow_the_tables_and_keep_as_many_as_they_should(
    postgres: PostgresServer, tmp_path: Path, format: str
) -> None:
    postgres.execute("CREATE SCHEMA proof;" + "".join(CREATE.format(name, ROWS) for name in ("stays", "goes")))
    spec: dict[str, object] = {"cuts": {"every": "1m", "keep": KEEP}, "apply": {"freshness": "500ms"}}
    deployment = Deployment(tmp_path / "cuts", postgres.source(), format, spec)
    steps: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "added": lambda: postgres.execute(CREATE.format("added", ROWS)),
        "dropped": lambda: postgres.execute("DROP TABLE proof.goes"),
        "started over": lambda: resync(deployment, "proof.stays"),
    }
    run = deployment.start()
    try:
        run.until(lambda: replicating(deployment) == {"proof.stays", "proof.goes"}, 240, "the tables are read")
        client = DriverClient.of(RunFolder.of(deployment.name, deployment.state))
        client.make_cut("by_name")
        for what, act in steps.items():
            known = {cut.name for cut in client.cuts()}
            act()
            postgres.execute("UPDATE proof.stays SET v = v + 1")
            run.until(partial(settled, client, known), 150, f"a cut after {what}")
            print(what, [(t.name, t.version, t.why) for t in client.cuts()[-1].tables])
        last = client.cuts()[-1]
        assert {table.name for table in last.tables if table.why is None} >= {"proof.added"}, last
        assert "proof.goes" not in {table.name for table in last.tables if table.why is None}, last
        names = [cut.name for cut in client.cuts()]
        assert names[0] == "by_name" and len(names) == 1 + KEEP, names
        for cut in client.cuts():
            for table in cut.tables:
                if table.version is not None:
                    assert rows(deployment, table.name, cut, int(table.version)) == ROWS, (cut.name, table.name)
        assert run.stop() == 0, run.tail()
    finally:
        deployment.close()


def replicating(deployment: Deployment) -> set[str]:
    found = status(deployment)
    return set() if found is None else {t["name"] for t in found["tables"] if t["state"] == "REPLICATING"}


def settled(client: DriverClient, known: set[str]) -> bool:
    """There is another cut, which waits for nothing, and never more than there may be."""
    time.sleep(1)
    cuts = client.cuts()
    assert sum(cut.scheduled for cut in cuts) <= KEEP, cuts
    return cuts[-1].name not in known and not cuts[-1].waits


def resync(deployment: Deployment, name: str) -> None:
    here = ("-f", str(deployment.manifest), "--run-dir", str(deployment.state))
    done = deployment.command("resync", *here, "--tables", name)
    assert done.returncode == 0, done.stderr


def rows(deployment: Deployment, name: str, cut: CutReport, version: int) -> int:
    """As readers find them."""
    folder = deployment.lake / name.replace(".", "/")
    if deployment.format == "delta":
        table = deltalake.DeltaTable(str(folder), version=version)
        query = deltalake.QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t")
        return int(query.read_all()["n"][0].as_py())
    metadata = max((folder / "metadata").glob("v*.metadata.json"), key=lambda at: int(at.name[1:].split(".")[0]))
    static = StaticTable.from_metadata(str(metadata))
    assert static.metadata.refs[f"cut_{cut.name}"].snapshot_id == version
    return int(static.scan(snapshot_id=version).to_arrow().num_rows)
