"""A verification while both sides change and the driver is killed: it finds what somebody changed in the copy, and
nothing else, a thousand differences in columns of all types among them; a repair makes the copy equal."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from support import planted
from support.database_copies import place_of
from support.mysql import TARGETS, MysqlServer
from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import status
from support.versions import turns


@pytest.mark.timeout(900)
@pytest.mark.parametrize("product", turns("postgresql", *TARGETS))
def test_what_somebody_changed_in_a_copy_is_found_and_repaired_whoever_is_killed(
    prove: Begin, postgres: PostgresServer, product: str
) -> None:
    if product == "postgresql":
        postgres.execute("CREATE DATABASE copy")
        prove_it(prove, postgres, postgres)
    else:
        with MysqlServer(product) as server:
            prove_it(prove, postgres, server)


def prove_it(prove: Begin, source: PostgresServer, copy: PostgresServer | MysqlServer) -> None:
    options = [{"match": "proof.typed", "asText": ["f"]}] if isinstance(copy, MysqlServer) else []
    proof = prove(
        "delta",
        seed=6,
        rows=SMALL,
        snapshot={"chunkRows": 60, "parallelism": 3},
        target=place_of(copy),
        apply={"freshness": "300ms"},
        showValues=True,
        options=options,
    )
    source.execute(planted.TABLES)
    source.execute(planted.MANY_TABLE)
    run = proof.deployment.start(seams="verification.after-compare=kill@3")
    run.until(lambda: whole(proof), 300, "the initial snapshots are applied")
    writers = proof.writers(seed=6, count=2)
    planted.plant(copy)
    expected = planted.plant_many(copy, Random(6))
    with written(source):
        verify(proof, "--id", "check")
    assert run.wait(120) != 0, run.tail()
    run = proof.deployment.start()
    run.until(proof.completed(6), 120, "it answers")
    with written(source):
        code, found = verify(proof, "--id", "check")
    assert code == 3, (found, run.tail())
    for table in found["tables"]:
        rows = {(row["kind"], row["key"], tuple(sorted(row["columns"]))) for row in table["differences"]}
        if table["name"] == planted.KEYLESS:
            assert (table["compared"]["extra"], table["compared"]["missing"]) == (planted.TWICE, planted.LOST), table
        elif table["name"] == planted.MANY:
            none_missed_none_invented(table, expected)
        else:
            assert rows == (planted.FOUND if table["name"] == planted.QUIET else set()), table
        assert table["finished"] and table["fault"] is None, table
    quiet = next(table for table in found["tables"] if table["name"] == planted.QUIET)
    assert quiet["compared"]["rows"] == planted.ROWS
    source.execute(planted.LACKED)
    run.until(lambda: stopped(proof) == {planted.KEYLESS: "ForeignChange"}, 120, "the row to be missed")
    code, found = verify(proof)
    assert code == 1 and "verify -f <manifest> --repair" in str(found), found
    code, found = verify(proof, "--repair")
    assert (code, found["repairsLeft"], found["repairs"] > 0) == (3, 0, True), found
    (keyless,) = (table["compared"] for table in found["tables"] if table["name"] == planted.KEYLESS)
    assert (keyless["extra"], keyless["missing"]) == (planted.TWICE, planted.LOST - 1), keyless
    code, found = verify(proof)
    assert code == 0, found
    assert all(table["verified"]["compared"]["rows"] for table in document(proof)["tables"])
    writers.stop()
    # In MySQL texts of its types are other ones; there the verification just before has compared them.
    same_texts = (planted.MANY,) if isinstance(copy, PostgresServer) else ()
    repaired = (planted.QUIET, planted.KEYLESS, *same_texts)
    run.until(lambda: all(planted.equal(source, copy, name) for name in repaired), 120, "equal")
    proof.deployment.spec |= {"verify": {"every": "1m"}}
    proof.deployment.write_manifest()
    done = proof.deployment.command("reload", "-f", str(proof.deployment.manifest), *proof.here, timeout=180)
    assert done.returncode == 0, done.stderr
    run.until(lambda: in_background(proof), 60, "a table to be verified without a request")
    ages = document(proof)["freshness"]
    assert ages["changes"] > 0 and ages["p50"] <= ages["p99"] < 300, ages
    assert run.stop() == 0, run.tail()


def none_missed_none_invented(table: dict[str, Any], expected: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    named = {row["key"]: (row["kind"], tuple(row["columns"])) for row in table["differences"]}
    assert named == expected and len(named) == planted.PLANTS
    counts = {kind: table["compared"][kind] for kind in ("missing", "extra", "different", "undecided")}
    changed = planted.PLANTS - planted.MISSING - planted.EXTRA
    assert counts == {"missing": planted.MISSING, "extra": planted.EXTRA, "different": changed, "undecided": 0}
    assert table["compared"]["rows"] == planted.MANY_ROWS


@contextmanager
def written(source: PostgresServer) -> Iterator[None]:
    """Rows of the large table change meanwhile, as the copy should: none of those that somebody has changed there."""
    ending, random = threading.Event(), Random(7)

    def run() -> None:
        with source.connect() as connection:
            while not ending.wait(0.02):
                changed = f"UPDATE {planted.MANY} SET i = i + 1, t = t || '.' WHERE id = {random.randint(1, 1000)}"
                connection.execute(changed.encode())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def stopped(proof: Proof) -> dict[str, str]:
    found = document(proof)["tables"]
    return {table["name"]: table["fault"]["name"] for table in found if table["fault"] is not None}


def in_background(proof: Proof) -> bool:
    found = status(proof.deployment)
    verified = [table["verified"] for table in found["tables"] if table["verified"]] if found is not None else []
    mine = [last for last in verified if last["snapshot"].startswith("verification-")]
    assert all(last["compared"]["rows"] and not last["compared"]["different"] for last in mine), mine
    return bool(mine)


def verify(proof: Proof, *arguments: str) -> tuple[int, dict[str, Any]]:
    manifest = str(proof.deployment.manifest)
    done = proof.deployment.command("verify", "-f", manifest, "--json", *arguments, *proof.here, timeout=240)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def whole(proof: Proof) -> bool:
    found = status(proof.deployment)
    return found is not None and [table["state"] for table in found["tables"]] == ["REPLICATING"] * 6


def document(proof: Proof) -> dict[str, Any]:
    done = proof.deployment.command("status", "-f", str(proof.deployment.manifest), "--json", *proof.here)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
