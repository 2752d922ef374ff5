"""The repairs that docs/operations.md names for tables and for the stream, executed: broken, repaired as told, equal.

On the product without a JVM (`support.ddl.quick`). Names of the whole process, and of a target's files, are met
elsewhere (`MET_ELSEWHERE`); their repair is another manifest, other files, or the resync that is executed here. A
name of the document without an entry fails the guard.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.ddl.judge import judge
from support.ddl.nursery import Nursery
from support.ddl.quick import Quick, Refused, quick
from support.postgres import PostgresServer
from tailrace.capture.renewal import Renewal
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.storage import Storage

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Repair:
    """How the name comes about, and what the document tells to do."""

    breaks: tuple[str, ...]
    source: tuple[str, ...] = ()
    """Statements at the source."""
    spec: dict[str, Any] | None = None
    """What changes in the manifest; takes a restart."""
    resync: bool = False


OUT_OF_PUBLICATION = (
    "DO $$ BEGIN EXECUTE format('ALTER PUBLICATION %I DROP TABLE s.{t}', (SELECT pubname FROM pg_publication)); END $$"
)
REPAIRS = {
    "NoKey": Repair(("ALTER TABLE s.{t} DROP CONSTRAINT {t}_pkey",), ("ALTER TABLE s.{t} ADD PRIMARY KEY (id)",)),
    # Our own publication is put right by the next look: nothing to do, and none may be lost.
    "ReadRefused": Repair((OUT_OF_PUBLICATION, "UPDATE s.{t} SET a = 'unpublished'")),
    "SchemaChangeUnsupported": Repair(("ALTER TABLE s.{t} DROP COLUMN b",), resync=True),
    "TableGone": Repair(("ALTER TABLE s.{t} RENAME TO {t}_now", "UPDATE s.{t}_now SET a = 'renamed'")),
    "ValueUnsupported": Repair(
        ("INSERT INTO s.{t} VALUES (900, 'x', 'y', 'infinity')",),
        spec={"options": [{"match": "s.valueunsupported", "asText": ["d"]}]},
        resync=True,
    ),
}
STREAM = {"PositionLost"}
"""Has a test of its own below."""
MET_ELSEWHERE = {
    "ForeignChange": "tests/integration/test_iceberg_state.py",
    "TargetChanged": "tests/integration/test_generations.py",
    "LogTrimmed": "tests/unit/test_run_apply_loop.py",
    "SourceRefused": "tests/integration/test_capture_start.py",
    "TargetRefused": "tests/integration/test_proof_foreign.py",
    "AuthenticationFailed": "tests/integration/test_pg_source_preflight.py",
    "StorageRefused": "tests/integration/test_storage_s3.py",
    "InvalidManifest": "tests/unit/test_contract_manifest.py",
    "Fenced": "tests/integration/test_owned_commits.py",
    "CorruptLog": "tests/unit/test_changelog_journal.py",
    "UnknownMessage": "tests/unit/test_pg_pgoutput.py",
    "SnapshotFailed": "tests/unit/test_run_status.py",
}
NOTHING_TO_DO = {"CaptureEnded", "Retry", "OutcomeUnknown", "InternalError", "ChunkLost", "ChunkTooOld"}


def names() -> set[str]:
    """The first column of the document's table."""
    text = (ROOT / "docs" / "operations.md").read_text()
    table = text[text.index("## Errors by name") : text.index("The commands say besides")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_name_of_the_document_has_an_entry() -> None:
    assert names() == REPAIRS.keys() | STREAM | MET_ELSEWHERE.keys() | NOTHING_TO_DO
    for name, path in MET_ELSEWHERE.items():
        assert name in (ROOT / path).read_text(), f"{path} does not meet {name}"
        assert not path.endswith("test_docs.py"), "it lists every name and meets none"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def fill(one: Quick) -> None:
    one.sql("CREATE SCHEMA s")
    for name in REPAIRS:
        one.sql(f"CREATE TABLE s.{name.lower()} (id int PRIMARY KEY, a text, b text, d date)")
        one.sql(f"INSERT INTO s.{name.lower()} SELECT g, 'a' || g, 'b', '2020-01-01' FROM generate_series(1, 20) g")


def run_all(one: Quick, name: str, statements: tuple[str, ...]) -> None:
    for statement in statements:
        one.sql(statement.format(t=name.lower()))


@pytest.mark.timeout(180)
def test_each_table_is_equal_after_the_documented_repair(
    server: PostgresServer, nursery: Nursery, tmp_path: Path
) -> None:
    with quick(server, nursery, tmp_path, "repairs") as one:
        fill(one)
        one.start()
        one.settle()
        for name, repair in REPAIRS.items():
            run_all(one, name, repair.breaks)
        stopped = judge(one, one.settle()).stopped
        for name in REPAIRS:
            if name not in ("TableGone", "ReadRefused"):
                assert name in stopped.get(f"s.{name.lower()}", ""), (name, stopped)
        for name, repair in REPAIRS.items():
            run_all(one, name, repair.source)
        one.stop()
        for repair in REPAIRS.values():
            one.spec |= repair.spec or {}
        one.start()
        one.settle()
        one.ask([f"s.{name.lower()}" for name, repair in REPAIRS.items() if repair.resync], resync=True)
        one.settle()
        for name in REPAIRS:
            table = f"{name.lower()}_now" if name == "TableGone" else name.lower()
            one.sql(f"UPDATE s.{table} SET a = 'after' WHERE id < 5")
        verdict = judge(one, one.settle())
        assert not verdict.wrong and not verdict.stopped, verdict


@pytest.mark.timeout(180)
def test_the_stream_is_equal_after_its_position_was_lost_and_all_is_started_over(
    server: PostgresServer, nursery: Nursery, tmp_path: Path
) -> None:
    with quick(server, nursery, tmp_path, "lost") as one:
        fill(one)
        one.start()
        one.settle()
        one.stop()
        one.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'lost'")
        one.sql("UPDATE s.nokey SET a = 'lost'")
        one.sql("DELETE FROM s.tablegone WHERE id > 3")
        with pytest.raises(Refused, match="PositionLost"):
            one.start()
        one.stop(kill=True)
        Renewal(id="again").write(Storage.open(StorageConfig(location=(one.folder / "log").as_uri())))
        one.start()
        verdict = judge(one, one.settle())
        assert not verdict.wrong and not verdict.stopped, verdict
