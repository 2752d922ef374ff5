"""A copy in a database that is verified: all of Tailrace in one process, without a JVM; and once in a fork that a seam
kills."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support import planted
from support.database_copies import place_of
from support.forks import Forked
from support.mysql import MysqlServer
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.proof.process import commands
from support.resources import replicator as document_of
from support.seam_names import checked
from tailrace import seams, sources
from tailrace.capture.loop import Timing
from tailrace.cli import main as cli
from tailrace.contract.resources import Replicator
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.run_dir import RunFolder

CHUNK_ROWS = 40
CALM = Timing(record=0.2, poll=1.0, heartbeat=0.5, step=0.02)
"""Writers write all the time, and each record is a batch."""


def document(source: PostgresServer, copy: PostgresServer | MysqlServer, folder: Path) -> dict[str, Any]:
    """The manifest: `proof.*` into the other server."""
    return document_of(
        "copies",
        source=source.source(),
        storage={"location": (folder / "log").as_uri()},
        tables={"include": ["proof.*"]},
        target=place_of(copy),
        snapshot={"chunkRows": CHUNK_ROWS, "parallelism": 2},
        options=[
            {"match": planted.MARKED, "history": "SoftDelete"},
            planted.SHAPED_OPTIONS,
            *([{"match": "proof.typed", "asText": ["f"]}] if isinstance(copy, MysqlServer) else []),
        ],
    )


def opened(manifest: dict[str, Any], folder: Path) -> Pipeline:
    replicator = Replicator.model_validate(manifest)
    tables = lake(replicator, None)  # type: ignore[arg-type]  # a database's copies need no Spark
    made = Pipeline(manifest, sources.open(replicator.spec.source, "test"), folder, tables)
    made.timing = CALM
    return made


def verifying(manifest: dict[str, Any], folder: str, asked: str, plan: str) -> int:
    """In a fork: it dies at a seam."""
    seams._plan, seams._visits = seams._parse(plan), {}
    pipeline = opened(manifest, Path(folder))
    pipeline.start()
    pipeline.until(lambda _: pipeline.driver.ask(asked, ["*.*"], mode="Verify"), work=True)
    pipeline.until(lambda _: False, work=True)
    return 0


def killed_while_verifying(pipeline: Pipeline, asked: str, plan: str) -> None:
    """All tables, by a process that ends at the seam. `plan`: as in `tailrace.seams`. The pipeline is not running
    meanwhile."""
    log = pipeline.folder / "verifying.log"
    given = ("support.verified_copy", "verifying", pipeline.document, str(pipeline.folder), asked, checked(plan))
    code = Forked(commands(), commands().fork("call", log, *given)).wait(240)
    assert code == -9, log.read_text()


class Commands:
    """`tailrace` commands to a pipeline that runs."""

    def __init__(self, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
        self._pipeline, self._capsys = pipeline, capsys
        self._folder = RunFolder(pipeline.folder / "run")
        self._folder.take()
        self._server = StatusServer(pipeline.driver.control, "127.0.0.1", 0, self._folder.make_token())
        self._server.start()
        self._folder.announce(self._server.url, None)

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors; the driver works meanwhile."""
        here = ("-f", str(self._pipeline.manifest), "--run-dir", str(self._folder.path))
        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(cli.main, [words[0], *here, *words[1:]])
            self._pipeline.until(lambda _: ended.done(), work=True)
        printed = self._capsys.readouterr()
        return ended.result(), printed.out, printed.err

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report."""
        code, output, errors = self("verify", "--json", *words)
        return code, json.loads(output) if output else {"error": errors}

    def close(self) -> None:
        self._server.close()
        self._folder.release()
