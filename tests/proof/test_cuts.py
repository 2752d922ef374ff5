"""Cuts under kills: at each of them, the tables together are what the source was at one moment."""

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.compute as pc
import pytest
from pyiceberg.table import StaticTable

from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin
from support.proof.money import MONEY, TOTAL, transfers
from support.proof.process import Deployment, status
from support.versions import turns
from tailrace.cli.client import DriverClient
from tailrace.contract.driver import CutReport
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import TailraceError

NAMES = ("proof.giro", "proof.savings")


class Cutter:
    """Somebody who has cuts made, again and again, by whatever driver runs."""

    def __init__(self, deployment: Deployment) -> None:
        self._folder = RunFolder.of(deployment.name, deployment.state)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.made = 0

    def __enter__(self) -> "Cutter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def client(self) -> DriverClient:
        return DriverClient.of(self._folder)

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(0.4):
            number += 1
            with suppress(TailraceError):
                self.client().make_cut(f"cut{number}")
                self.made += 1


@pytest.mark.timeout(900)
@pytest.mark.turn(0, 2)  # whole drivers
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_the_sum_over_two_tables_is_the_constant_at_every_cut_whoever_is_killed(
    prove: Begin, postgres: PostgresServer, format: str
) -> None:
    spec: dict[str, Any] = {"apply": {"freshness": "200ms"}, "cuts": {"every": "1m", "keep": 1}}
    proof = prove(format, seed=9, rows=SMALL, tables={"include": list(NAMES)}, **spec)
    postgres.execute(MONEY)
    run = proof.deployment.start(seams="cut.before-naming=kill@5")
    run.until(lambda: whole(proof.deployment), 240, "both tables are read")
    with Cutter(proof.deployment) as cutter, transfers(postgres):
        for seam in ("cut.after-naming=kill@6", "apply.after-commit=kill@12", ""):
            assert run.wait(240) != 0, f"the seam was never reached\n{run.tail()}"
            assert list(proof.deployment.marks.iterdir()), f"not by the kill\n{run.tail()}"
            run = proof.deployment.start(seams=seam)
        run.until(proof.completed(1), 120, "it answers")
        before = cutter.made
        run.until(lambda: cutter.made > before + 5, 120, "more cuts")
    run.until(lambda: not any(cut.waits for cut in cutter.client().cuts()), 120, "the tables have come to all cuts")
    run.until(lambda: shown(proof.deployment, cutter.client().cuts()), 60, "the journal's cuts are shown")
    all_cuts = cutter.client().cuts()
    assert run.stop() == 0, run.tail()
    assert sum(cut.scheduled for cut in all_cuts) == 1, "the clock keeps one of its own, whoever was killed"
    cuts = tuple(cut for cut in all_cuts if not cut.scheduled)
    assert all(cut.complete for cut in cuts) and len(cuts) >= cutter.made > 8, (cutter.made, cuts)
    versions = {tuple(table.version for table in cut.tables) for cut in cuts}
    assert len(versions) > 5, "money moved in between"
    sums = {cut.name: sum(balances(proof.deployment, format, name, cut) for name in NAMES) for cut in cuts}
    assert set(sums.values()) == {TOTAL}, sums


def whole(deployment: Deployment) -> bool:
    found = status(deployment)
    return found is not None and [table["state"] for table in found["tables"]] == ["REPLICATING"] * 2


def shown(deployment: Deployment, cuts: tuple[CutReport, ...]) -> bool:
    if deployment.format == "iceberg":
        return True
    found = [(path(deployment, cut), cut) for cut in cuts]
    return all(file.exists() and json.loads(file.read_text())["complete"] == cut.complete for file, cut in found)


def path(deployment: Deployment, cut: CutReport) -> Path:
    return deployment.lake / "_tailrace" / "cuts" / f"{cut.name}.json"


def balances(deployment: Deployment, format: str, name: str, cut: CutReport) -> int:
    """The table's sum at the cut, found as readers find it."""
    (version,) = (table.version for table in cut.tables if table.name == name)
    folder = deployment.lake / name.replace(".", "/")
    if format == "delta":
        of_cut = json.loads(path(deployment, cut).read_text())["tables"][name]
        assert (of_cut["location"], str(of_cut["version"])) == (name.replace(".", "/"), version)
        table = deltalake.DeltaTable(str(folder), version=of_cut["version"])
        query = deltalake.QueryBuilder().register("t", table).execute("SELECT sum(balance) AS s FROM t")
        return int(query.read_all()["s"][0].as_py())
    newest = max((folder / "metadata").glob("v*.metadata.json"), key=lambda at: int(at.name[1:].split(".")[0]))
    static = StaticTable.from_metadata(str(newest))
    snapshot = static.metadata.refs[f"cut_{cut.name}"].snapshot_id
    assert str(snapshot) == version
    return int(pc.sum(static.scan(snapshot_id=snapshot).to_arrow()["balance"]).as_py())
