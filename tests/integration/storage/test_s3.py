"""The storage layer, the journal and segments against a real S3 server."""

import pickle
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.origins import origin
from support.s3 import S3Server
from support.store_contract import StoreContract
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import Credentials, StorageLocation
from tailrace.errors import Fenced, OutcomeUnknown, Retry
from tailrace.storage.access import StorageRefused
from tailrace.storage.files import RemoteInput
from tailrace.storage.store import Storage

ORIGIN = origin()


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


class TestS3(StoreContract):
    pass


def test_the_store_keeps_its_word_that_what_exists_is_not_created_again(storage: Storage) -> None:
    storage.require_exclusive("probe")
    assert list(storage.list("")) == []


def test_parquet_goes_in_and_out_also_in_parts_and_in_a_pickled_storage(storage: Storage) -> None:
    table = pa.table({"x": pa.array(range(3_000_000), pa.int64())})
    with storage.open_output("big.parquet") as output:
        pq.write_table(table, output, compression="none", use_dictionary=False)
    assert output.size == storage.size("big.parquet") > 16 << 20
    for path in ("big.parquet", storage.uri("big.parquet")):
        with pickle.loads(pickle.dumps(storage)).open_input(path) as source:
            assert pq.read_table(source).equals(table)


def test_ranged_reads_for_stores_that_arrow_does_not_know_bring_the_same_rows(storage: Storage) -> None:
    table = pa.table({"x": pa.array(range(100_000), pa.int64()), "y": pa.array(["y"] * 100_000)})
    with storage.open_output("a.parquet") as output:
        pq.write_table(table, output, row_group_size=10_000)
    source = RemoteInput(storage._store, "some/log/a.parquet", partial(storage.errors, "a.parquet"))
    assert pq.ParquetFile(source).read_row_groups([3], ["x"])["x"].to_pylist() == list(range(30_000, 40_000))
    assert pq.ParquetFile(source).read().equals(table)


def test_an_output_that_raises_leaves_nothing(storage: Storage) -> None:
    for size in (10, 20 << 20):
        with pytest.raises(RuntimeError), storage.open_output("half") as output:
            output.write(b"x" * size)
            raise RuntimeError("half-way")
        assert not storage.exists("half")


def test_wrong_keys_and_a_missing_bucket_are_refused_by_name(s3: S3Server, tmp_path: Path) -> None:
    wrong = Storage.open(config(s3, tmp_path, secret="wrong"))
    with pytest.raises(StorageRefused):
        wrong.create("x", b"")
    with pytest.raises(StorageRefused):
        wrong.get("x")
    missing = Storage.open(config(s3, tmp_path, bucket="no-such-bucket"))
    with pytest.raises(StorageRefused, match="bucket"):
        missing.get("x")
    with pytest.raises(StorageRefused, match="bucket"):
        missing.create("x", b"1")


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


def test_the_journal_fences_the_lower_epoch(storage: Storage) -> None:
    old = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    old.append(Position(6), events=(Heartbeat(),))
    new = JournalWriter.claim(storage, "b")
    with pytest.raises(Fenced):
        old.append(Position(7), events=(Heartbeat(),))
    new.append(Position(8), events=(Heartbeat(),))
    assert JournalReader.open(storage).state == new.state
