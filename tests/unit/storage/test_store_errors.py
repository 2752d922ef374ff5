"""Errors of object stores, as Tailrace reports them."""

import pytest
from obstore import exceptions

from tailrace.contract.resources import StorageLocation
from tailrace.errors import Retry
from tailrace.storage.access import StorageRefused, resolve
from tailrace.storage.store import Storage


@pytest.mark.parametrize(
    ("scheme", "service", "named"),
    [
        ("s3", "http://169.254.169.254/latest/api/token", ("`credentials`", "AWS_")),
        ("gs", "http://metadata.google.internal/computeMetadata/v1/x", ("GOOGLE_SERVICE_ACCOUNT", "`podTemplate`")),
        ("az", "http://169.254.169.254/metadata/identity/oauth2/token", ("AZURE_STORAGE_ACCOUNT_KEY", "`podTemplate`")),
    ],
)
def test_a_store_without_credentials_says_where_this_store_takes_them_from(
    scheme: str, service: str, named: tuple[str, ...]
) -> None:
    storage = Storage(resolve(StorageLocation(location=f"{scheme}://lake/x"), {}))
    with pytest.raises(Retry) as met, storage.errors("a"):
        raise exceptions.GenericError(f"Error performing PUT {service}")
    assert all(word in met.value.fix for word in named)
    assert ("`credentials`" in met.value.fix) == (scheme == "s3"), "a manifest has them for S3 only"


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_outage_of_a_store_is_not_taken_for_missing_credentials(scheme: str) -> None:
    storage = Storage(resolve(StorageLocation(location=f"{scheme}://lake/x"), {}))
    with pytest.raises(Retry) as met, storage.errors("a"):
        raise exceptions.GenericError("Error performing PUT https://lake.example.org/x")
    assert met.value.fix == ""


@pytest.mark.parametrize(("scheme", "variable"), [("s3", "AWS_"), ("gs", "GOOGLE_"), ("az", "AZURE_")])
def test_settings_that_a_store_cannot_use_are_named_by_where_they_come_from(scheme: str, variable: str) -> None:
    storage = Storage(resolve(StorageLocation(location=f"{scheme}://lake/x"), {}))
    with pytest.raises(StorageRefused) as met, storage.errors("a"):
        raise exceptions.GenericError("Account must be specified")
    named = {"AWS_", "GOOGLE_", "AZURE_", "manifest"} - {variable}
    assert f"{variable}… in the environment" in met.value.fix or f"the environment ({variable}…)" in met.value.fix
    assert {word for word in named if word in met.value.fix} == ({"manifest"} if scheme == "s3" else set())
