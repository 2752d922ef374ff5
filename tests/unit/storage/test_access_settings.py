"""Storage settings that no library can use end as errors that name the field, the value and the fix, before anything is
sent: libraries panic on them, or retry for ever."""

from pathlib import Path
from typing import Any

import pytest

from tailrace.contract.resources import StorageLocation
from tailrace.errors import InvalidManifest, Stop
from tailrace.storage.access import StorageRefused, resolve
from tailrace.storage.store import Storage

S3 = "s3://lake/log"


def settings(**more: object) -> StorageLocation:
    return StorageLocation.model_validate({"location": S3, **more})


ADDRESSES = ["127.0.0.1", "127.0.0.1:9000", "[::1]:9000", "10.1.2.3."]
BAD_HOSTS = [
    "", ":9000", "host:99999", "host:0", "host:abc", "lo cal", "host:1 ", "lo\tcal", "löcal", "a..b", "-a", "a:",
    "host?x=1", "host#f", "host/a b", "user:word@host", "1.2.3.4.5", "[::1", "[x]", "[::1]x", "a" * 64, "300.1.1.1",
    "2130706433", "0x7f.1",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_ip_address_as_endpoint_needs_the_bucket_in_the_path(address: str) -> None:
    with pytest.raises(InvalidManifest, match=r"endpoint.*lake.*pathStyle: true") as refusal:
        resolve(settings(endpoint=f"http://{address}"), {})
    assert address in refusal.value.message


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9000", "[::1]:9000", "host", "a-b.c_d.example:443", "host/storage/s3/", "host/"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_endpoints_that_can_be_used_are_taken(address: str, scheme: str) -> None:
    found = resolve(settings(endpoint=f"{scheme}://{address}", pathStyle=True), {})
    assert found.endpoint == f"{scheme}://{address}".rstrip("/")


@pytest.mark.parametrize("path_style", [False, True])
@pytest.mark.parametrize("host", BAD_HOSTS)
def test_an_endpoint_that_no_client_can_use_is_refused(host: str, path_style: bool) -> None:
    with pytest.raises(InvalidManifest, match=r"endpoint.*https://host\[:port\]") as refusal:
        resolve(settings(endpoint=f"http://{host}", pathStyle=path_style), {})
    assert "word" not in str(refusal.value), "a password would stand in every log"


@pytest.mark.parametrize("bucket", ["b k", "b%k", "b:k", "b@k", "lé", "b,k", "b&k"])
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_bucket_s_name_has_no_odd_characters(bucket: str, scheme: str) -> None:
    with pytest.raises(InvalidManifest, match="location"):
        resolve(settings(location=f"{scheme}://{bucket}/log"), {})


@pytest.mark.parametrize("bucket", ["My-Bucket", "my_bucket", "a..b", ".b", "b.", "-b", "a" * 64, "ab.-c"])
def test_a_bucket_in_the_host_name_is_a_host_name(bucket: str) -> None:
    with pytest.raises(InvalidManifest, match=r"location.*pathStyle: true"):
        resolve(settings(location=f"s3://{bucket}/log"), {})


@pytest.mark.parametrize("bucket", ["my-bucket", "lake.2024.x", "0lake", "abc"])
def test_ordinary_buckets_are_taken(bucket: str) -> None:
    assert resolve(settings(location=f"s3://{bucket}/log"), {}).bucket == bucket
    assert resolve(settings(location=f"gs://{bucket}_x/log"), {}).bucket == f"{bucket}_x"


@pytest.mark.parametrize("region", ["us east", "us\neast", " ", "ü", "a/b", "a:b", "x" * 65])
def test_a_region_that_would_be_no_part_of_a_host_name_is_refused(region: str) -> None:
    with pytest.raises(InvalidManifest, match=r"region.*eu-central-1"):
        resolve(settings(region=region, endpoint="http://host", pathStyle=True), {})


@pytest.mark.parametrize(
    "more",
    [
        {"secretAccessKey": b"\xff"},
        {"accessKeyId": b"a\x01"},
        {"secretAccessKey": "geheim-ü".encode()},
        {"secretAccessKey": b"b b"},
        {"sessionToken": "geheim-ü".encode()},
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_credentials_that_cannot_be_sent_are_refused_and_not_repeated(
    tmp_path: Path, more: dict[str, bytes], folder: bool
) -> None:
    keys = {"accessKeyId": b"a", "secretAccessKey": b"b", **more}
    place = tmp_path / "keys"
    if folder:
        place.mkdir()
        for name, value in keys.items():
            (place / name).write_bytes(value)
    else:
        place.write_bytes(b"\n".join(name.encode() + b"=" + value for name, value in keys.items()))
    with pytest.raises(StorageRefused, match=str(place)) as refusal:
        resolve(settings(credentials={"file": str(place)}), {})
    assert "geheim" not in str(refusal.value) and refusal.value.fix


def test_a_path_of_credentials_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(StorageRefused, match="credentials"):
        resolve(settings(credentials={"file": "/tmp/a\0b"}), {})


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({"AWS_REGION": "us east", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, {}),
        ({"AWS_ACCESS_KEY_ID": "a\x01", "AWS_SECRET_ACCESS_KEY": "b"}, {"region": "x"}),
        ({}, {"location": "az://container/log"}),
    ],
)
def test_what_the_environment_gives_and_no_client_can_use_is_a_refusal(
    environment: dict[str, str], config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """object_store panics on the first two, and would be asked again for ever for the third."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    storage = Storage.open(settings(**config), retry_seconds=0.1)
    with pytest.raises(Stop, match="environment"):
        storage.create("x", b"")
    with pytest.raises(Stop, match="environment"):
        storage.get("x")
