"""The storage layer on `gs://`, against a stand-in."""

from collections.abc import Iterator

import pytest

from support.gcs import GoogleStorage
from support.store_contract import ObjectStoreContract
from tailrace.contract.resources import StorageLocation
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


@pytest.fixture
def missing(bucket: str) -> Storage:
    return Storage.open(StorageLocation(location=f"gs://{bucket}-missing/log"), {})


class TestGoogle(ObjectStoreContract):
    lacks = "bucket does not exist"
