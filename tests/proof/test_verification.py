"""A verification while both sides change and its process is killed: it finds what somebody changed in the copy, and
nothing else; a repair makes the copy equal.

All of Tailrace in one process, without a JVM. Whole drivers: `tests/soak/test_soak_verification.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.database_copies import of_mysql, of_postgres, settle
from support.mysql import TARGETS, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.proof import tables
from support.proof.writers import Writers
from support.verified_copy import Commands, document, killed_while_verifying, opened
from support.versions import turns
from tailrace.errors import privacy

ROWS, SEED = 120, 6
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
FOUND = {
    ("different", "3", ("v",)), ("different", "40", ("v",)), ("different", "77", ("n", "name")),
    ("missing", "5", ()), ("missing", "119", ()), ("extra", "1000", ()),
}  # fmt: skip
LOST, TWICE = 4, 2
"""Rows without a key that were deleted, and that are there once too often."""
DIFFER = 3
"""The exit code."""
CHECK = "check-of-all"
KILLED = "verification.after-compare=kill@7"
"""The first process compares fewer at once, so that some are recorded."""


@pytest.fixture
def shown() -> Iterator[None]:
    """Commands set `spec.showValues` for the process that they run in."""
    privacy.configure(True)
    yield
    privacy.configure(False)


@pytest.mark.parametrize("product", turns("postgresql", *TARGETS))
def test_what_somebody_changed_in_a_copy_is_found_and_repaired_whoever_is_killed(
    postgres: PostgresServer, product: str, tmp_path: Path, shown: None, capsys: pytest.CaptureFixture[str]
) -> None:
    if product == "postgresql":
        postgres.execute("CREATE DATABASE copy")
        prove_it(postgres, postgres, tmp_path, capsys)
    else:
        with MysqlServer(product) as server:
            prove_it(postgres, server, tmp_path, capsys)


def prove_it(
    source: PostgresServer, copy: PostgresServer | MysqlServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with source.connect() as connection:
        tables.create(connection, ROWS // 2, SEED)
    source.execute(QUIET)
    pipeline = opened(document(source, copy, folder), folder)
    with pipeline.running():
        settle(pipeline)
    writers = Writers(source.connect, count=1, keys=ROWS, seed=SEED, pause=0.05).start()
    for statement in PLANTED:
        if isinstance(copy, PostgresServer):
            copy.execute(statement, dbname="copy")
        else:
            copy.execute(statement)
    killed_while_verifying(pipeline, CHECK, KILLED)
    with pipeline.running():
        commands = Commands(pipeline, capsys)
        try:
            found_and_repaired(pipeline, source, commands)
        finally:
            commands.close()
        writers.stop()
        settle(pipeline)
    for name in ("proof.quiet", "proof.keyless", *(f"proof.{table.name}" for table in tables.TABLES)):
        assert equal(source, copy, name), name


def found_and_repaired(pipeline: Pipeline, source: PostgresServer, commands: Commands) -> None:
    parts = pipeline.state.snapshots[CHECK].tables.values()
    compared = sum(len(part.chunks) - len(part.uncompared) for part in parts)
    assert compared and pipeline.state.snapshots[CHECK].ended is None, "it continues with the others"
    pipeline.until(lambda state: state.snapshots[CHECK].ended is not None, work=True)
    report = pipeline.driver.control.report(CHECK)
    for table in report.tables:
        rows = {(row.kind, row.key, tuple(sorted(row.columns))) for row in table.differences}
        if table.name == "proof.keyless":
            assert (table.compared.extra, table.compared.missing) == (TWICE, LOST), table
        else:
            assert rows == (FOUND if table.name == "proof.quiet" else set()), table
        assert table.finished and table.fault is None, table
        assert table.compared.rows == ROWS or table.name != "proof.quiet", table
    one = "SELECT min(ctid) FROM proof.keyless WHERE v = 7 AND name = 'name 1'"
    source.execute(f"DELETE FROM proof.keyless WHERE ctid = ({one})")
    pipeline.until(lambda _: pipeline.driver.faults() == {"proof.keyless": "ForeignChange"}, work=True)
    code, found = commands.verify("--tables", "proof.keyless")
    assert code == 1 and "verify -f <manifest> --repair" in str(found), found
    code, found = commands.verify("--repair", "--tables", "proof.quiet", "proof.keyless")
    assert (code, found["repairsLeft"], found["repairs"] > 0) == (DIFFER, 0, True), found
    (keyless,) = (table["compared"] for table in found["tables"] if table["name"] == "proof.keyless")
    assert (keyless["extra"], keyless["missing"]) == (TWICE, LOST - 1), keyless
    code, found = commands.verify()
    assert code == 0, found
    assert all(table.verified and table.verified.compared.rows for table in pipeline.driver.control.status().tables)


def equal(source: PostgresServer, copy: PostgresServer | MysqlServer, name: str) -> bool:
    if isinstance(copy, MysqlServer):
        return of_mysql(copy, name) == of_postgres(source, name)
    query = f"SELECT t::text FROM {name} t"
    return sorted(source.execute(query)) == sorted(source.execute(query, dbname="copy"))
