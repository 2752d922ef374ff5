"""The storage layer on local folders, and what it makes of a `storage` block."""

import os
import pickle
from pathlib import Path

import pytest

from support.store_contract import StoreContract
from tailrace.contract.resources import Credentials, StorageLocation
from tailrace.errors import InvalidManifest
from tailrace.storage import local
from tailrace.storage.access import StorageRefused, hadoop_options, resolve
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import file_options


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{tmp_path}/a%20b/log/"))


def s3_config(file: Path | None = None, **more: object) -> StorageLocation:
    credentials = None if file is None else Credentials(file=str(file))
    return StorageLocation.model_validate(
        {
            "location": "s3://lake/_t/shop",
            "credentials": credentials,
            "endpoint": "http://127.0.0.1:1",
            "path_style": True,
            **more,
        }
    )


class TestLocal(StoreContract):
    pass


def test_a_store_that_creates_what_exists_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.require_exclusive("journal/probe")
    assert list(storage.list("")) == []
    monkeypatch.setattr(storage, "create", storage.put)
    with pytest.raises(StorageRefused, match="If-None-Match"):
        storage.require_exclusive("journal/probe")
    assert list(storage.list("")) == []


def test_an_output_appears_whole_or_not_at_all(storage: Storage) -> None:
    with storage.open_output("chunks/1.parquet") as output:
        output.write(b"abc")
        assert not storage.exists("chunks/1.parquet")
    assert output.size == 3
    with storage.open_input("chunks/1.parquet") as source:
        assert source.read() == b"abc"
    with pytest.raises(RuntimeError), storage.open_output("chunks/2.parquet") as output:
        output.write(b"abc")
        raise RuntimeError("half-way")
    assert [path for path, _ in storage.list("")] == ["chunks/1.parquet"]
    assert list((Path(storage.access.prefix) / "chunks").glob(f"{local.TEMPORARY}*")) == []


def test_an_object_is_synced_before_it_gets_its_name(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put("journal/0.json", b"")
    steps: list[str] = []
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        steps.append("sync")
        real_sync(descriptor)

    def link(source: Path, target: Path) -> None:
        steps.append("link")
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    storage.create("journal/1.json", b"one")
    assert steps == ["sync", "link", "sync"]


def test_a_storage_travels_in_a_pickle(storage: Storage) -> None:
    storage.put("x", b"1")
    assert pickle.loads(pickle.dumps(storage)).get("x") == b"1"


def test_a_folder_in_the_place_of_an_object_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(StorageRefused, match="no folder"):
        Storage.open(StorageLocation(location=f"file://{tmp_path}/log")).create("journal/1.json", b"")


def test_credentials_come_from_lines_or_from_a_mounted_secret(tmp_path: Path) -> None:
    lines = tmp_path / "keys"
    lines.write_text("# ours\naccessKeyId = me\nsecretAccessKey=a=b\n")
    mounted = tmp_path / "secrets" / "lake"
    mounted.mkdir(parents=True)
    (mounted / "accessKeyId").write_text("me\n")
    (mounted / "secretAccessKey").write_text("a=b\n")
    named = StorageLocation(location="s3://lake/x", credentials=Credentials(secret_name="lake"))
    for access in (
        resolve(s3_config(lines), {}),
        resolve(s3_config(mounted), {}),
        resolve(named, {"TAILRACE_SECRETS": str(tmp_path / "secrets")}),
    ):
        assert (access.access_key, access.secret_key) == ("me", "a=b")
        assert "a=b" not in repr(access)


def test_missing_or_incomplete_credentials_are_refused_without_showing_them(tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.write_text("accessKeyId=me\nsecretKey=hush\n")
    with pytest.raises(StorageRefused, match="secretAccessKey") as caught:
        resolve(s3_config(half), {})
    assert "hush" not in str(caught.value)
    with pytest.raises(StorageRefused, match="nowhere"):
        resolve(s3_config(tmp_path / "nowhere"), {})


def test_one_block_gives_hadoop_and_iceberg_the_same_place(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("accessKeyId=me\nsecretAccessKey=hush\n")
    config = s3_config(keys, path_style=True, region="eu-1")
    hadoop, iceberg = hadoop_options(config, {}), file_options(config, {})
    assert hadoop["fs.s3a.bucket.lake.endpoint"] == iceberg["s3.endpoint"] == "http://127.0.0.1:1"
    assert hadoop["fs.s3a.bucket.lake.secret.key"] == iceberg["s3.secret-access-key"] == "hush"
    assert hadoop["fs.s3a.bucket.lake.path.style.access"] == iceberg["s3.path-style-access"] == "true"
    assert hadoop["fs.s3a.bucket.lake.connection.ssl.enabled"] == "false"
    assert hadoop_options(StorageLocation(location=f"file://{tmp_path}"), {}) == {}


@pytest.mark.parametrize("endpoint", ["minio:9000", "ftp://x"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidManifest):
        resolve(s3_config(endpoint=endpoint), {})


def test_a_path_of_another_kind_of_storage_is_refused(storage: Storage) -> None:
    with pytest.raises(InvalidManifest):
        storage.get("s3://lake/x")


def test_keys_that_a_store_would_not_use_are_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("accessKeyId=a\nsecretAccessKey=b\n")
    with pytest.raises(InvalidManifest, match="gs://lake/log"):
        resolve(s3_config(keys, location="gs://lake/log", endpoint=None), {})


def test_a_folder_that_another_process_makes_and_removes_at_that_moment_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir
    made: list[Path] = []

    def taken(path: Path, mode: int = 0o777) -> None:
        if path.name == "deep" and not made:
            made.append(path)
            raise FileExistsError(path)  # by now it is gone
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", taken)
    local.write(str(tmp_path / "new/deep/file"), b"content", exclusive=True)
    assert made and (tmp_path / "new/deep/file").read_bytes() == b"content"
