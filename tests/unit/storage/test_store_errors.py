"""Errors of object stores, as Tailrace reports them."""

import pytest
from obstore import exceptions

from tailrace.contract.resources import StorageLocation
from tailrace.errors import Retry
from tailrace.storage.access import resolve
from tailrace.storage.store import NO_CREDENTIALS, Storage


@pytest.mark.parametrize(
    ("text", "fix"),
    [("PUT http://169.254.169.254/latest/api/token", NO_CREDENTIALS), ("PUT https://lake.example.org/x", "")],
)
def test_a_store_without_credentials_names_the_missing_ones(text: str, fix: str) -> None:
    storage = Storage(resolve(StorageLocation(location="s3://lake/x"), {}))
    with pytest.raises(Retry) as met, storage.errors("a"):
        raise exceptions.GenericError(f"Error performing {text}")
    assert met.value.fix == fix
