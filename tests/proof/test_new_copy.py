"""A table that is read again, under the whole product: readers that are not ours never find it empty or incomplete,
wherever the driver is killed, and whatever is written meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from demo.compare import READERS, compare
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import Deployment, status
from support.versions import turns

ROWS = 2000
BALANCE = (ROWS, ROWS * (ROWS + 1) // 2)
"""Rows, and the sum of `n`: no transaction changes either."""
WRITTEN = "staged.after-commit"
CASES = (
    ("delta", True, (WRITTEN, "delta.before-replace")),
    ("iceberg", True, ("staged.before-commit", "iceberg.before-replace", "publish.after")),
    ("delta", True, ("staged.before-commit", "publish.before", "publish.after")),
    ("iceberg", True, (WRITTEN, "publish.before")),
    ("delta", False, ("staged.before-commit", "delta.before-replace", "publish.after")),
    ("iceberg", False, ("staged.before-commit", "iceberg.before-replace", "publish.before")),
)
"""Format, whether the table has a key (one without is read as one chunk), seams."""
SETUP = f"""
CREATE SCHEMA proof;
CREATE TABLE proof.t (id int PRIMARY KEY, a text NOT NULL DEFAULT 'a', n int NOT NULL, b text DEFAULT 'b');
INSERT INTO proof.t (id, n) SELECT g, g FROM generate_series(1, {ROWS}) g;
"""
MOVE = "UPDATE proof.t SET n = n + CASE WHEN id = %(one)s THEN 1 ELSE -1 END WHERE id IN (%(one)s, %(two)s)"
WITHOUT_KEY = "; ALTER TABLE proof.t DROP CONSTRAINT t_pkey; ALTER TABLE proof.t REPLICA IDENTITY FULL"
CHANGE = "ALTER TABLE proof.t DROP COLUMN b, ADD COLUMN b int DEFAULT 7"
OTHER_KEY = "; ALTER TABLE proof.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)"


@contextmanager
def again_and_again(work: Callable[[], None], pause: float) -> Iterator[None]:
    """On a thread of its own, until the end of the block; what it raises comes out there."""
    over, raised = threading.Event(), list[Exception]()

    def loop() -> None:
        try:
            while not over.wait(pause):
                work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    if raised:
        raise raised[0]


@pytest.mark.timeout(1500)
@pytest.mark.postgres(18)
@pytest.mark.parametrize(("format", "key", "seams"), turns(*CASES))
def test_readers_never_find_it_incomplete(
    postgres: PostgresServer, tmp_path: Path, format: str, key: bool, seams: tuple[str, ...]
) -> None:
    postgres.execute(SETUP if key else SETUP + WITHOUT_KEY)
    snapshot = {"chunkRows": 150, "parallelism": 2}
    spec: dict[str, object] = {"tables": {"include": ["proof.t"]}, "onSchemaChange": "Evolve", "snapshot": snapshot}
    deployment = Deployment(tmp_path / "proof", postgres.source(), format, spec)
    seen, random = list[tuple[int, int]](), Random(3)

    def look() -> None:
        rows = READERS[format](deployment.lake / "proof" / "t")
        seen.append((rows.num_rows, sum(rows["n"].to_pylist())))
        assert seen[-1] == BALANCE

    with postgres.connect() as connection:

        def move() -> None:
            one, two = random.sample(range(1, ROWS + 1), 2)
            connection.execute(MOVE, {"one": one, "two": two})

        try:
            run = deployment.start(seams=armed(seams[0]))
            run.until(lambda: level(deployment), 200, "the table is there")
            with again_and_again(move, 0.02), again_and_again(look, 0.3):
                killed(deployment, run, seams)
                changed(deployment, postgres, CHANGE + OTHER_KEY if key else CHANGE)
            settled(deployment, postgres, format)
        finally:
            deployment.close()
    assert len(seen) > 20


def killed(deployment: Deployment, run: Program, seams: tuple[str, ...]) -> None:
    """A resync for each seam at which the driver dies, the first time the one that runs; the next one finds it under
    way."""
    for number, seam in enumerate(seams):
        request = deployment.request(f"again-{number}", tables=["proof.t"], resync=True)
        if number:
            run = deployment.start("-f", str(request), seams=armed(seam))
        else:
            here = ("-f", str(deployment.manifest), "--run-dir", str(deployment.state))
            done = deployment.command("snapshot", "-f", str(request), *here)
            assert done.returncode == 0, done.stderr
        assert run.wait(300) != 0, f"{seam} was never reached\n{run.tail()}"


def armed(seam: str) -> str:
    return f"{seam}=kill@{1 + (seam == WRITTEN)}"


def changed(deployment: Deployment, server: PostgresServer, change: str) -> None:
    """A column that cannot be told from the one of its name, and another key."""
    run = deployment.start()
    run.until(lambda: level(deployment), 200, "all resyncs are over")
    server.execute(change)
    run.until(lambda: replacing(deployment), 100, "the table is read again")
    run.until(lambda: level(deployment), 200, "its new form is complete")


def settled(deployment: Deployment, server: PostgresServer, format: str) -> None:
    with server.connect() as connection:
        end = time.monotonic() + 120
        while found := compare(connection, ["proof.t"], deployment.lake, format, {}):
            assert time.monotonic() < end, found
            time.sleep(1)


def replacing(deployment: Deployment) -> bool:
    document = status(deployment)
    return document is not None and any(table["replacing"] for table in document["tables"])


def level(deployment: Deployment) -> bool:
    document = status(deployment)
    ended = document is not None and all(s["state"] not in ("Pending", "Running") for s in document["snapshots"])
    return ended and document is not None and [t["state"] for t in document["tables"]] == ["REPLICATING"]
