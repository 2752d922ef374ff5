"""Places of change log and tables that CI has no room for: a REST catalog that dies, and a change log on Azure and on
Google."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from demo.compare import compare_by
from support.azurite import Azurite
from support.gcs import GoogleStorage
from support.iceberg_rest import served
from support.proof import tables
from support.proof.harness import SMALL, Begin
from support.proof.on_s3 import OnS3
from support.s3 import S3Server
from support.store_contract import ObjectStoreContract
from tailrace.contract.resources import StorageLocation, TargetSpec
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import file_options


@pytest.mark.timeout(1200)
def test_once_into_a_rest_catalog_that_dies_after_a_commit_and_under_a_driver_that_is_killed(
    prove: Begin, s3: S3Server, tmp_path: Path
) -> None:
    """The catalog dies with a commit made and unanswered; started again, the same driver finds what became of it. The
    driver dies before a commit; the next one goes on. A wrong login is refused by name, before anything is made."""
    on_s3, login = OnS3(s3, tmp_path / "s3-keys"), tmp_path / "catalog-login"
    on_s3.write_keys()
    proof = prove("iceberg", seed=3, rows=SMALL, storage=on_s3.place("log"))
    catalog: dict[str, object] = {"type": "rest", "uri": "http://to-be-known", "credentials": {"file": str(login)}}
    target = {"type": "iceberg", **on_s3.place("lake"), "catalog": catalog}
    login.write_text("credential=tailrace:wrong\n")
    options = file_options(TargetSpec.model_validate(target).lake, {})
    with served(tmp_path / "rest", proof.server, {**options, "warehouse": f"s3://{s3.bucket}/lake"}) as rest:
        catalog["uri"] = rest.uri
        proof.deployment.spec["target"] = target
        proof.assert_refused(10, "TargetRefused")
        login.write_text(f"credential={rest.credential}\n")
        rest.die_after_the_next_commit()
        run = proof.deployment.start("--once")
        run.until(rest.ended, 300, "the catalog to die after a commit")
        rest.start()
        assert run.wait(400) == 0, run.tail()
        writers = proof.writers(seed=4, count=2)
        time.sleep(2)
        writers.stop()
        run = proof.deployment.start("--once", seams="iceberg.before-commit=kill@2")
        assert run.wait(400) != 0, f"the driver was not killed\n{run.tail()}"
        proof.deployment.once()

        def read(schema: str, table: str) -> pa.Table:
            with proof.server.connect() as connection:
                row = connection.execute(
                    "SELECT metadata_location FROM iceberg_tables WHERE (table_namespace, table_name) = (%s, %s)",
                    (schema, table),
                ).fetchone()
            assert row is not None
            return StaticTable.from_metadata(row[0], on_s3.iceberg_properties).scan().to_arrow()

        with proof.server.connect() as connection:
            assert compare_by(connection, [f"proof.{table.name}" for table in tables.TABLES], read) == []


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def container(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    return azurite.new_container()


@pytest.fixture
def storage(container: str) -> Storage:
    return Storage.open(StorageLocation(location=f"az://{container}/some/log"), {})


@pytest.fixture
def missing(container: str) -> Storage:
    return Storage.open(StorageLocation(location=f"az://{container}-missing/log"), {})


class TestAzure(ObjectStoreContract):
    lacks = "container"


@pytest.mark.timeout(1200)
def test_a_change_log_on_azure_survives_the_death_of_capture_and_of_the_driver(
    prove: Begin, container: str, azurite: Azurite
) -> None:
    require_survival(prove, f"az://{container}/log", azurite.environment)


@pytest.mark.timeout(1200)
def test_a_change_log_on_google_survives_the_death_of_capture_and_of_the_driver(prove: Begin, tmp_path: Path) -> None:
    with GoogleStorage(tmp_path) as google:
        require_survival(prove, f"gs://{google.new_bucket()}/log", google.environment)


def require_survival(prove: Begin, location: str, environment: dict[str, str]) -> None:
    proof = prove("delta", seed=5, rows=SMALL, storage={"location": location})
    proof.deployment.environment |= environment
    writers = proof.writers(seed=5, count=2)
    run = proof.deployment.start(seams="capture.after-segments=kill@3,journal.after-create=kill@6")
    run.until(lambda: len(list(proof.deployment.marks.iterdir())) == 2, 400, "capture to die twice")
    run.kill()
    run = proof.deployment.start(seams="delta.before-commit=kill@2")
    assert run.wait(400) != 0, f"the driver was not killed\n{run.tail()}"
    writers.stop()
    proof.deployment.once()
    proof.assert_equal()
