"""A verification while both sides change and its process is killed: it finds what somebody changed in the copy, and
nothing else; a repair makes the copy equal.

All of Tailrace in one process, without a JVM. Whole drivers: `tests/soak/test_soak_verification.py`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import planted
from support.database_copies import settle
from support.mysql import TARGETS, MysqlServer
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.proof import tables
from support.proof.writers import Writers
from support.verified_copy import Commands, document, killed_while_verifying, opened
from support.versions import turns
from tailrace.errors import privacy

SEED = 6
FOUND = {planted.QUIET: planted.FOUND, planted.MARKED: planted.FOUND, planted.SHAPED: planted.SHAPED_FOUND}
DIFFER = 3
"""The exit code."""
CHECK = "check-of-all"
KILLED = "verification.after-compare=kill@7"
"""The first process compares fewer at once, so that some are recorded."""


@pytest.fixture
def shown() -> Iterator[None]:
    """The keys of the first report. A manifest with masks has no `spec.showValues`, so later commands hide them."""
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
        tables.create(connection, planted.ROWS // 2, SEED)
    source.execute(planted.TABLES + planted.MARKED_TABLE + planted.SHAPED_TABLE)
    pipeline = opened(document(source, copy, folder), folder)
    with pipeline.running():
        settle(pipeline)
        source.execute(planted.DELETED)
        for statement in planted.RENAMED:
            source.execute(statement)
        settle(pipeline)
    writers = Writers(source.connect, count=1, keys=planted.ROWS, seed=SEED, pause=0.05).start()
    planted.plant(copy)
    planted.plant_marked(copy)
    planted.plant_shaped(copy)
    killed_while_verifying(pipeline, CHECK, KILLED)
    with pipeline.running():
        commands = Commands(pipeline, capsys)
        try:
            found_and_repaired(pipeline, source, commands)
        finally:
            commands.close()
        writers.stop()
        settle(pipeline)
    for name in (planted.QUIET, planted.KEYLESS, *(f"proof.{table.name}" for table in tables.TABLES)):
        assert planted.equal(source, copy, name), name
    assert planted.marked_equal(source, copy)
    assert planted.shaped_equal(source, copy)


def found_and_repaired(pipeline: Pipeline, source: PostgresServer, commands: Commands) -> None:
    parts = pipeline.state.snapshots[CHECK].tables.values()
    compared = sum(len(part.chunks) - len(part.uncompared) for part in parts)
    assert compared and pipeline.state.snapshots[CHECK].ended is None, "it continues with the others"
    pipeline.until(lambda state: state.snapshots[CHECK].ended is not None, work=True)
    report = pipeline.driver.control.report(CHECK)
    for table in report.tables:
        rows = {(row.kind, row.key, tuple(sorted(row.columns))) for row in table.differences}
        if table.name == planted.KEYLESS:
            assert (table.compared.extra, table.compared.missing) == (planted.TWICE, planted.LOST), table
        else:
            assert rows == FOUND.get(table.name, set()), table
        assert table.finished and table.fault is None, table
        assert table.compared.rows == planted.ROWS or table.name != planted.QUIET, table
    named_alone(commands)
    source.execute(planted.LACKED)
    pipeline.until(lambda _: pipeline.driver.faults() == {planted.KEYLESS: "ForeignChange"}, work=True)
    code, found = commands.verify("--tables", planted.KEYLESS)
    assert code == 1 and "verify -f <manifest> --repair" in str(found), found
    repaired = (planted.QUIET, planted.MARKED, planted.SHAPED, planted.KEYLESS)
    code, output, said = commands("verify", "--json", "--repair", "--tables", *repaired)
    found = json.loads(output)
    assert "verify again, without --repair" in said
    assert (code, found["repairsLeft"], found["repairs"] > 0) == (DIFFER, 0, True), found
    (keyless,) = (table["compared"] for table in found["tables"] if table["name"] == planted.KEYLESS)
    assert (keyless["extra"], keyless["missing"]) == (planted.TWICE, planted.LOST - 1), keyless
    code, found = commands.verify()
    assert code == 0, found
    assert all(table.verified and table.verified.compared.rows for table in pipeline.driver.control.status().tables)


def named_alone(commands: Commands) -> None:
    """Of one table: the rows that a command names, a sample of the whole table, which looks for no row that only the
    copy has, and one of some ranges."""
    for words, rows, counts in (
        (("--keys", "3", "5", "6"), (2, 3), (1, 1, 0)),
        (("--sample", "50%", "--chunk-rows", "20000"), (planted.ROWS,), (2, 3, 0)),
    ):
        code, found = commands.verify("--tables", planted.QUIET, *words)
        (compared,) = (table["compared"] for table in found["tables"])
        assert (code, tuple(compared[kind] for kind in ("missing", "different", "extra"))) == (DIFFER, counts), found
        assert compared["rows"] in rows, found
    code, found = commands.verify("--tables", planted.QUIET, "--sample", "20%", "--chunk-rows", "10")
    (compared,) = (table["compared"] for table in found["tables"])
    assert 0 < compared["rows"] < planted.ROWS, "some ranges, and one at least"
    assert compared["missing"] <= 2 and compared["different"] <= 3 and not compared["extra"], found
    assert code == (DIFFER if compared["missing"] or compared["different"] else 0), found
