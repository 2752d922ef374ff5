"""Tables that go back to a cut hold what the source held then, and are equal again after the next start."""

from functools import partial
from typing import Any

import pytest

from demo.compare import read_delta, read_iceberg
from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import ENVIRONMENT, forked, status
from support.versions import turns
from tailrace.cli.client import DriverClient
from tailrace.driver.process.run_dir import RunFolder

NAMES = ("proof.giro", "proof.savings")
TABLES = """
CREATE TABLE proof.giro (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE proof.savings (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO proof.giro SELECT n, n FROM generate_series(1, 40) n;
INSERT INTO proof.savings SELECT n, n FROM generate_series(1, 40) n;
"""
WRITES = (
    "UPDATE proof.giro SET balance = balance + 7 WHERE id % 3 = 0; DELETE FROM proof.savings WHERE id = 1",
    "TRUNCATE proof.savings; DELETE FROM proof.giro WHERE id > 20; INSERT INTO proof.giro VALUES (100, 1);"
    " INSERT INTO proof.savings VALUES (7, 70)",
)
"""What is written before each cut. Nothing changes during it: what the source holds then is known."""


def command(proof: Proof, *arguments: str, seams: str = "") -> tuple[int, str]:
    output = proof.deployment.folder / "rewind.log"
    output.write_text("")
    given = ("rewind", "-f", str(proof.deployment.manifest), *proof.here, *arguments)
    once = proof.deployment.folder / "rewind-seams"
    once.mkdir(exist_ok=True)
    environment = ENVIRONMENT | {"TAILRACE_SEAMS": seams, "TAILRACE_SEAMS_ONCE": str(once)}
    return forked(given, environment, output).wait(240), output.read_text()


def source(server: PostgresServer, name: str) -> set[tuple[Any, ...]]:
    with server.connect() as connection:
        return set(connection.execute(f"SELECT id, balance FROM {name}".encode()).fetchall())


def whole(proof: Proof) -> bool:
    found = status(proof.deployment)
    if found is None or not found["snapshots"] or any(shot["state"] != "Completed" for shot in found["snapshots"]):
        return False
    return [table["state"] for table in found["tables"]] == ["REPLICATING"] * len(NAMES)


def holds(client: DriverClient, name: str) -> bool:
    """Makes the cut, again if it lacks a table: the journal may not know yet that the first snapshot has ended."""
    made = next((cut for cut in client.cuts() if cut.name == name), None) or client.make_cut(name)
    if not made.waits and not made.complete:
        client.drop_cut(name)
    return made.complete


def rows(proof: Proof, name: str) -> set[tuple[Any, ...]]:
    read = read_delta if proof.deployment.format == "delta" else read_iceberg
    found = read(proof.deployment.lake / name.replace(".", "/")).select(["id", "balance"]).to_pylist()
    assert len(found) == len({row["id"] for row in found})
    return {(row["id"], row["balance"]) for row in found}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_tables_go_back_to_each_cut_and_are_equal_after_the_next_start(
    prove: Begin, postgres: PostgresServer, format: str
) -> None:
    proof = prove(format, seed=5, rows=SMALL, apply={"freshness": "200ms"}, tables={"include": list(NAMES)})
    postgres.execute(TABLES)
    run = proof.deployment.start()
    run.until(lambda: whole(proof) and not proof.differences(*NAMES), 240, "both tables are read")
    client, held = DriverClient.of(RunFolder.of(proof.deployment.name, proof.deployment.state)), {}
    for number, statements in enumerate(WRITES):
        postgres.execute(statements)
        run.until(lambda: not proof.differences(*NAMES), 120, "written")
        run.until(partial(holds, client, f"cut{number}"), 120, "the cut is held")
        for name in NAMES:
            held[number, name] = source(postgres, name)
    postgres.execute("UPDATE proof.giro SET balance = 0; INSERT INTO proof.savings VALUES (8, 80)")
    run.until(lambda: not proof.differences(*NAMES), 120, "all is written")
    code, said = command(proof, "--to-cut", "cut0")
    assert code != 0 and "AlreadyRunning" in said
    assert run.stop() == 0, run.tail()
    code, said = command(proof, "--to-cut", "cut9")
    assert code == 1 and "RewindRefused: there is no cut 'cut9'" in said
    code, said = command(proof, "--to-time", "2001-01-01T00:00:00Z")
    assert code == 1 and "there is no cut at or before" in said
    assert not proof.differences(*NAMES), "nothing was touched"
    code, said = command(proof, "--to-cut", "cut1", seams="rewind.after-table=kill@1")
    assert code != 0 and list((proof.deployment.folder / "rewind-seams").iterdir()), said
    for number in (1, 0):
        code, said = command(proof, "--to-cut", f"cut{number}")
        assert code == 0, said
        for name in NAMES:
            assert rows(proof, name) == held[number, name], f"{name} at cut{number}: {said}"
    run = proof.deployment.start()
    run.until(lambda: not proof.differences(*NAMES), 240, "replayed")
    postgres.execute("UPDATE proof.giro SET balance = 3 WHERE id < 5")
    run.until(lambda: not proof.differences(*NAMES), 120, "it goes on")
    assert run.stop() == 0, run.tail()
