"""A verification while both sides change and the driver is killed: it finds what somebody changed in the copy, and
nothing else; a repair makes the copy equal."""

import json
from typing import Any

import pytest

from support.database_copies import of_mysql, of_postgres, place_of
from support.mysql import TARGETS, MysqlServer
from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin, Proof
from support.proof.process import status
from support.versions import turns

ROWS = 120
QUIET = f"""
CREATE TABLE proof.quiet (id int PRIMARY KEY, v bigint, name text, n numeric(10,2));
INSERT INTO proof.quiet SELECT n, n * 3, 'name ' || n, n / 7.0 FROM generate_series(1, {ROWS}) n;
CREATE TABLE proof.keyless (v int, name text);
ALTER TABLE proof.keyless REPLICA IDENTITY FULL;
INSERT INTO proof.keyless SELECT n % 10, 'name ' || n % 3 FROM generate_series(1, {ROWS}) n;
"""
PLANTED = (
    "UPDATE proof.quiet SET v = -1 WHERE id IN (3, 40)",
    "UPDATE proof.quiet SET name = NULL, n = 1.5 WHERE id = 77",
    "DELETE FROM proof.quiet WHERE id IN (5, 119)",
    "INSERT INTO proof.quiet VALUES (1000, 1, 'nobody', 1)",
    "INSERT INTO proof.keyless VALUES (4, 'nobody'), (3, 'name 0')",
    "DELETE FROM proof.keyless WHERE v = 7 AND name = 'name 1'",
)
LOST, TWICE = 4, 2
"""Rows without a key that were deleted, and that are there once too often."""


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
    source.execute(QUIET)
    run = proof.deployment.start(seams="verification.after-compare=kill@3")
    run.until(lambda: whole(proof), 300, "the initial snapshots are applied")
    writers = proof.writers(seed=6, count=2)
    for statement in PLANTED:
        if isinstance(copy, PostgresServer):
            copy.execute(statement, dbname="copy")
        else:
            copy.execute(statement)
    verify(proof, "--id", "check")
    assert run.wait(120) != 0, run.tail()
    run = proof.deployment.start()
    run.until(proof.completed(5), 120, "it answers")
    code, found = verify(proof, "--id", "check")
    assert code == 3, (found, run.tail())
    expected = {
        "proof.quiet": {
            ("different", "3", ("v",)), ("different", "40", ("v",)), ("different", "77", ("n", "name")),
            ("missing", "5", ()), ("missing", "119", ()), ("extra", "1000", ()),
        },
    }  # fmt: skip
    for table in found["tables"]:
        rows = {(row["kind"], row["key"], tuple(sorted(row["columns"]))) for row in table["differences"]}
        if table["name"] == "proof.keyless":
            assert (table["compared"]["extra"], table["compared"]["missing"]) == (TWICE, LOST), table
        else:
            assert rows == expected.get(table["name"], set()), table
        assert table["finished"] and table["fault"] is None, table
    quiet = next(table for table in found["tables"] if table["name"] == "proof.quiet")
    assert quiet["compared"]["rows"] == ROWS
    one = "SELECT min(ctid) FROM proof.keyless WHERE v = 7 AND name = 'name 1'"
    source.execute(f"DELETE FROM proof.keyless WHERE ctid = ({one})")
    run.until(lambda: stopped(proof) == {"proof.keyless": "ForeignChange"}, 120, "the row to be missed")
    code, found = verify(proof)
    assert code == 1 and "verify -f <manifest> --repair" in str(found), found
    code, found = verify(proof, "--repair")
    assert (code, found["repairsLeft"], found["repairs"] > 0) == (3, 0, True), found
    (keyless,) = (table["compared"] for table in found["tables"] if table["name"] == "proof.keyless")
    assert (keyless["extra"], keyless["missing"]) == (TWICE, LOST - 1), keyless
    code, found = verify(proof)
    assert code == 0, found
    assert all(table["verified"]["compared"]["rows"] for table in document(proof)["tables"])
    writers.stop()
    run.until(lambda: equal(source, copy, "proof.quiet") and equal(source, copy, "proof.keyless"), 120, "equal")
    proof.deployment.spec |= {"verify": {"every": "1m"}}
    proof.deployment.write_manifest()
    done = proof.deployment.command("reload", "-f", str(proof.deployment.manifest), *proof.here, timeout=180)
    assert done.returncode == 0, done.stderr
    run.until(lambda: in_background(proof), 60, "a table to be verified without a request")
    ages = document(proof)["freshness"]
    assert ages["changes"] > 0 and ages["p50"] <= ages["p99"] < 300, ages
    assert run.stop() == 0, run.tail()


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
    return found is not None and [table["state"] for table in found["tables"]] == ["REPLICATING"] * 5


def document(proof: Proof) -> dict[str, Any]:
    done = proof.deployment.command("status", "-f", str(proof.deployment.manifest), "--json", *proof.here)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def equal(source: PostgresServer, copy: PostgresServer | MysqlServer, name: str) -> bool:
    if isinstance(copy, MysqlServer):
        return of_mysql(copy, name) == of_postgres(source, name)
    query = f"SELECT t::text FROM {name} t"
    return sorted(source.execute(query)) == sorted(source.execute(query, dbname="copy"))
