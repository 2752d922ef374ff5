"""The storage layer against a real S3 server."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.s3 import S3Server
from support.store_contract import ObjectStoreContract
from tailrace.contract.resources import Credentials, StorageLocation
from tailrace.errors import OutcomeUnknown, Retry
from tailrace.storage.access import StorageRefused
from tailrace.storage.files import RemoteInput
from tailrace.storage.store import Storage


def config(s3: S3Server, folder: Path, secret: str | None = None, bucket: str | None = None) -> StorageLocation:
    keys = folder / f"keys-{secret}"
    keys.write_text(f"accessKeyId={s3.access_key}\nsecretAccessKey={secret or s3.secret_key}\n")
    return StorageLocation(
        location=f"s3://{bucket or s3.bucket}/some/log",
        endpoint=s3.endpoint,
        region=s3.region,
        path_style=True,
        credentials=Credentials(file=str(keys)),
    )


@pytest.fixture
def storage(s3: S3Server, tmp_path: Path) -> Storage:
    return Storage.open(config(s3, tmp_path))


@pytest.fixture
def missing(s3: S3Server, tmp_path: Path) -> Storage:
    return Storage.open(config(s3, tmp_path, bucket="no-such-bucket"))


class TestS3(ObjectStoreContract):
    lacks = "bucket"


def test_ranged_reads_for_stores_that_arrow_does_not_know_bring_the_same_rows(storage: Storage) -> None:
    table = pa.table({"x": pa.array(range(100_000), pa.int64()), "y": pa.array(["y"] * 100_000)})
    with storage.open_output("a.parquet") as output:
        pq.write_table(table, output, row_group_size=10_000)
    source = RemoteInput(storage._store, "some/log/a.parquet", partial(storage.errors, "a.parquet"))
    assert pq.ParquetFile(source).read_row_groups([3], ["x"])["x"].to_pylist() == list(range(30_000, 40_000))
    assert pq.ParquetFile(source).read().equals(table)


def test_wrong_keys_and_a_missing_bucket_are_refused_by_name(s3: S3Server, missing: Storage, tmp_path: Path) -> None:
    wrong = Storage.open(config(s3, tmp_path, secret="wrong"))
    with pytest.raises(StorageRefused):
        wrong.create("x", b"")
    with pytest.raises(StorageRefused):
        wrong.get("x")
    with pytest.raises(StorageRefused, match="bucket"):
        missing.get("x")


def test_a_server_that_is_away_is_an_unknown_outcome_for_writes_and_a_retry_for_reads(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3") as server:
        server.new_bucket()
        storage = Storage.open(config(server, tmp_path), retry_seconds=1)
        storage.put("x", b"1")
        server.stop()
        with pytest.raises(OutcomeUnknown):
            storage.create("y", b"1")
        with pytest.raises(Retry):
            storage.get("x")
        server.start()
        storage.create("y", b"1")
