"""The repairs that docs/operations.md names for tables and for the stream, executed: broken, repaired as told, equal.

On the product without a JVM (`support.ddl.in_process`). Repairs of the whole process, of target tables and of a lost
stream have tests of their own (`EXECUTED`). A name of the code without an entry fails the guard.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import error_names
from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import verify
from support.postgres import PostgresServer

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
PROCESS, ANY = "tests/proof/test_repairs_process.py", "tests/unit/test_errors_repaired.py"
TARGETS = (
    "tests/proof/test_repairs_targets.py",
    "test_what_others_do_to_a_target_and_a_full_disk_are_named_and_repaired_as_told",
)
EXECUTED = {
    "PositionLost": ("tests/proof/test_repairs_stream.py", "test_after_position_lost_the_command_starts_all_over"),
    "InvalidManifest": (ANY, "test_invalid_manifest"),
    "RemovalUnconfirmed": (ANY, "test_removal_unconfirmed"),
    "SourceRefused": (PROCESS, "test_source_refused"),
    "AuthenticationFailed": (PROCESS, "test_authentication_failed"),
    "StorageRefused": (ANY, "test_storage_refused"),
    "TargetRefused": (ANY, "test_target_refused"),
    "Fenced": (ANY, "test_fenced"),
    "CorruptLog": (PROCESS, "test_corrupt_log"),
    "UnknownMessage": (PROCESS, "test_unknown_message"),
    "SnapshotFailed": (ANY, "test_snapshot_failed"),
    "LogTrimmed": (ANY, "test_log_trimmed"),
    "ChunkLost": (ANY, "test_chunk_lost"),
    "LogIncomplete": (
        "tests/integration/sources/test_mysql_pipeline.py",
        "test_tables_that_a_session_changed_by_statements_are_equal_after_a_resync",
    ),
    "CopyDiffers": (
        "tests/proof/test_verification.py",
        "test_what_somebody_changed_in_a_copy_is_found_and_repaired_whoever_is_killed",
    ),
    "ForeignChange": TARGETS,
    "TargetChanged": TARGETS,
    "StorageFull": TARGETS,
}
"""Each has a test of its own: the error, its documented repair, source and target equal."""
NOTHING_TO_DO = {"UnknownEvent", "CaptureEnded", "Retry", "OutcomeUnknown", "InternalError", "ChunkTooOld", "Locked"}
SAID_BY_COMMANDS = {
    "NotRunning", "AlreadyRunning", "DriverRefused", "DriverSilent", "BeingLookedUp", "Withdrawn", "ArtifactMissing",
    "ExtraMissing", "DriverMissing", "KubectlFailed", "SnapshotUnfinished", "WrongSnapshot",
    "Unfinished", "NotVerified", "CutoverRefused", "StillWritten", "CutOver", "RewindRefused",
}  # fmt: skip
"""They break nothing."""


def test_every_name_of_the_code_has_an_entry() -> None:
    """That the document explains the same names, and no others, is `tests/unit/project/test_docs.py`'s."""
    entries = [*REPAIRS, *EXECUTED, *NOTHING_TO_DO, *SAID_BY_COMMANDS]
    assert sorted(error_names.shown()) == sorted(entries), "each name once"
    for path, test in EXECUTED.values():
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


def fill(one: InProcess) -> None:
    one.sql("CREATE SCHEMA s")
    for name in REPAIRS:
        one.sql(f"CREATE TABLE s.{name.lower()} (id int PRIMARY KEY, a text, b text, d date)")
        one.sql(f"INSERT INTO s.{name.lower()} SELECT g, 'a' || g, 'b', '2020-01-01' FROM generate_series(1, 20) g")


def run_all(one: InProcess, name: str, statements: tuple[str, ...]) -> None:
    for statement in statements:
        one.sql(statement.format(t=name.lower()))


@pytest.mark.timeout(180)
def test_each_table_is_equal_after_the_documented_repair(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path
) -> None:
    with in_process(server, fork_server, tmp_path, "repairs", onSchemaChange="EvolveAdditive") as one:
        fill(one)
        one.spec |= {"options": [{"match": "s.valueunsupported", "onUnsupported": "Fail"}]}
        one.start()
        one.settle()
        for name, repair in REPAIRS.items():
            run_all(one, name, repair.breaks)
        stopped = verify(one, one.settle()).stopped
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
        verdict = verify(one, one.settle())
        assert not verdict.wrong and not verdict.stopped, verdict
