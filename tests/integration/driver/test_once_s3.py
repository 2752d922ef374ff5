"""The whole path on object storage: change log and target on a real S3 server, read back by delta-rs and pyiceberg."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from demo.compare import compare_by
from support.proof import tables
from support.proof.harness import Begin, Proof
from support.proof.on_s3 import OnS3
from support.proof.writers import Writers
from support.s3 import S3Server
from support.versions import turns

CATALOG_PASSWORD = "catalog-password-0123456789"
CHUNKS = {"chunkRows": 60, "parallelism": 2}


@dataclass
class Watched(OnS3):
    """Also the file with the catalog's password, and the command lines seen while `tailrace` ran."""

    catalog_login: Path
    commands: set[str] = field(default_factory=set)

    def once(self, proof: Proof, writers: Writers | None = None) -> None:
        """`tailrace run --once` to success, looking at the processes' command lines meanwhile. Writers go on until the
        target has its first files."""
        run = proof.deployment.start("--once")
        end = time.monotonic() + 400
        while run.process.poll() is None and time.monotonic() < end:
            for process in run.family():
                with suppress(psutil.NoSuchProcess):
                    self.commands.add(" ".join(process.cmdline()))
            if writers is not None and any((self.folder / "lake").rglob("*.parquet")):
                writers.stop()
                writers = None
            time.sleep(0.5)
        assert run.wait(1) == 0, run.tail()
        assert "leaked" not in run.tail(), "the interpreter was taken apart under living threads"
        assert writers is None, "the writers were to end while the snapshot runs"

    def assert_no_secret_shows(self, proof: Proof) -> None:
        """Not in a command line, not in what the run wrote (logs, run folder), not in the bucket (journal, tables)."""
        secrets = (self.s3.secret_key, CATALOG_PASSWORD)
        assert any("SparkSubmit" in command for command in self.commands)
        assert any("tailrace.capture" in command for command in self.commands)
        assert not [command for command in self.commands if any(secret in command for secret in secrets)]
        written = [path for path in (proof.deployment.folder, self.s3.root) for path in path.rglob("*")]
        files = [path for path in written if path.is_file()]
        assert any(path.parent.name == "journal" for path in files) and any(path.suffix == ".log" for path in files)
        assert not [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]

    def iceberg(self, proof: Proof, schema: str, table: str) -> pa.Table:
        """The version that the catalog's own row points to."""
        query = "SELECT metadata_location FROM iceberg_tables WHERE (table_namespace, table_name) = (%s, %s)"
        with proof.server.connect() as connection:
            row = connection.execute(query, (schema, table)).fetchone()
        assert row is not None, f"{schema}.{table} is not in the catalog"
        return StaticTable.from_metadata(row[0], self.iceberg_properties).scan().to_arrow()


@pytest.fixture
def on_s3(s3: S3Server, tmp_path: Path) -> Watched:
    login = tmp_path / "catalog-login"
    login.write_text(f"username=postgres\npassword={CATALOG_PASSWORD}\n")
    made = Watched(s3, tmp_path / "s3-keys", login)
    made.write_keys()
    return made


def _follow(on_s3: Watched, proof: Proof, read: Callable[[str, str], pa.Table]) -> None:
    """Snapshot under writers; changes alone; then equal, and no secret anywhere."""
    on_s3.once(proof, proof.writers(seed=1, count=2, pause=0.05))
    writers = proof.writers(seed=2, count=2)
    time.sleep(2)
    writers.stop()
    on_s3.once(proof)
    _assert_equal(proof, read)
    on_s3.assert_no_secret_shows(proof)


def _assert_equal(proof: Proof, read: Callable[[str, str], pa.Table]) -> None:
    with proof.server.connect() as connection:
        assert compare_by(connection, [f"proof.{table.name}" for table in tables.TABLES], read) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_once_with_log_and_tables_on_s3(prove: Begin, on_s3: Watched, format: str) -> None:
    """Iceberg's with a JDBC catalog."""
    proof = prove(format, seed=1, storage=on_s3.place("log"), snapshot=CHUNKS)
    if format == "delta":
        proof.deployment.spec["target"] = {"type": "delta", **on_s3.place("lake")}
        _follow(on_s3, proof, on_s3.delta)
        return
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{proof.server.host}:{proof.server.port}/postgres",
        "credentials": {"file": str(on_s3.catalog_login)},
    }
    proof.deployment.spec["target"] = {"type": "iceberg", **on_s3.place("lake"), "catalog": catalog}
    _follow(on_s3, proof, lambda schema, table: on_s3.iceberg(proof, schema, table))
