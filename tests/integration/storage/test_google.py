"""The storage layer on `gs://`, against a stand-in: what the change log needs, which the contract of stores says."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.gcs import GoogleStorage
from support.origins import origin
from support.store_contract import StoreContract
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.errors import Fenced
from tailrace.storage.access import StorageRefused
from tailrace.storage.store import Storage


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStorage]:
    with GoogleStorage(tmp_path_factory.mktemp("google")) as server:
        yield server


@pytest.fixture
def bucket(google: GoogleStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in google.environment.items():
        monkeypatch.setenv(name, value)
    return google.new_bucket()


@pytest.fixture
def storage(bucket: str) -> Storage:
    return Storage.open(StorageLocation(location=f"gs://{bucket}/some/log"), {})


class TestGoogle(StoreContract):
    pass


def test_what_exists_is_not_created_again_and_the_lower_epoch_is_fenced(storage: Storage) -> None:
    storage.require_exclusive("probe")
    assert list(storage.list("")) == []
    old = JournalWriter.create(storage, origin(), Position(5), "a")
    old.append(Position(6), events=(Heartbeat(),))
    new = JournalWriter.claim(storage, "b")
    with pytest.raises(Fenced):
        old.append(Position(7), events=(Heartbeat(),))
    new.append(Position(8), events=(Heartbeat(),))


def test_parquet_goes_there_and_back_in_parts(storage: Storage) -> None:
    table = pa.table({"x": pa.array(range(3_000_000), pa.int64())})
    with storage.open_output("big.parquet") as output:
        pq.write_table(table, output, compression="none", use_dictionary=False)
    assert output.size == storage.size("big.parquet") > 16 << 20
    with storage.open_input("big.parquet") as source:
        assert pq.read_table(source).equals(table)
    with pytest.raises(RuntimeError), storage.open_output("half") as output:
        output.write(b"x" * (20 << 20))
        raise RuntimeError("half-way")
    assert not storage.exists("half")


def test_a_bucket_that_is_not_there_is_refused_by_name(bucket: str) -> None:
    missing = Storage.open(StorageLocation(location=f"gs://{bucket}-missing/log"), {})
    with pytest.raises(StorageRefused, match="bucket does not exist"):
        missing.create("x", b"1")
