"""SIGKILL at seams between two durable writes, with writers on MySQL or MariaDB whose commits stall now and then:
source = target afterwards, bit for bit, in Delta and in Iceberg; of tables with a row filter, the rows
that the server selects by it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import TableNotFoundError

from demo.compare import read_delta, read_iceberg
from support import mysql_shop
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_stalls import commits_that_stall
from support.process import Program
from support.proof.process import HELD, Deployment
from support.versions import turns

READERS = {"delta": read_delta, "iceberg": read_iceberg}
CAPTURE = ("capture.after-segments", "journal.before-create", "journal.after-create", "capture.before-ack")
CHUNK = ("chunk.before-snapshot", "chunk.after-snapshot", "chunk.after-read")
WHERE = {
    "plain": "n > 0 AND v IS NOT NULL OR id BETWEEN 20 AND 40",
    "typed": "e = 'x' OR d < 0 AND NOT y IN (2000, 2001) AND dt < '5000-01-01 00:00:00'",
}
CASES = ((MYSQL, "delta"), (MARIADB_NEWEST, "iceberg"))


@pytest.fixture
def deployment(server: MysqlServer, tmp_path: Path, format: str) -> Iterator[Deployment]:
    mysql_shop.create(server)
    options = [{"match": f"shop.{table}", "where": condition} for table, condition in WHERE.items()]
    chunks = {"chunkRows": 40, "parallelism": 2}
    spec: dict[str, object] = {"tables": {"include": ["shop.*"]}, "options": options, "snapshot": chunks}
    made = Deployment(tmp_path / "proof", mysql_shop.spec(server), format, spec)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        yield running


def differences(server: MysqlServer, deployment: Deployment) -> list[str]:
    def read(name: str) -> pa.Table:
        return READERS[deployment.format](deployment.lake / "shop" / name)

    try:
        return mysql_shop.differences(server, read, where=WHERE)
    except (FileNotFoundError, TableNotFoundError) as error:
        return [str(error)]


def settle(server: MysqlServer, deployment: Deployment, run: Program) -> None:
    def level() -> bool:
        time.sleep(1)
        return not differences(server, deployment)

    run.until(level, 400, "source = target")
    assert run.stop() == 0, run.tail()
    assert not differences(server, deployment)


@pytest.mark.timeout(1200)
@pytest.mark.turn(1, 2)  # whole drivers: nearly a minute of CPU
@pytest.mark.parametrize(("server", "format"), turns(*CASES), indirect=["server"])
def test_kills_at_every_seam_of_capture_chunks_and_driver_lose_and_double_nothing(
    server: MysqlServer, deployment: Deployment
) -> None:
    committed = f"{deployment.format}.after-commit"
    with mysql_shop.writers(server), commits_that_stall(server):
        time.sleep(1)
        plan = [f"{seam}=kill@{3 + 4 * i}" for i, seam in enumerate(CAPTURE)]
        plan += ["capture.after-origin=kill", *(f"{seam}=kill@{2 + i}" for i, seam in enumerate(CHUNK))]
        run = deployment.start(seams=",".join([*plan, f"{HELD}=hold"]))
        deployment.read_by_executors(run)
        run.until(lambda: len(list(deployment.marks.iterdir())) == len(plan), 400, f"all of {plan} to be reached")
        run.kill()
        killed = deployment.start(seams=f"{committed}=kill@3")
        assert killed.wait(240) != 0, f"{committed} was never reached\n{killed.tail()}"
        last = deployment.start()
        time.sleep(5)
    settle(server, deployment, last)
