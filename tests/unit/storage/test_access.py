"""One reading of a location for every library: what Hadoop, Iceberg and `Storage` are given is the same place."""

from pathlib import Path

import pytest

from tailrace.contract.resources import StorageLocation, TargetSpec
from tailrace.errors import InvalidManifest
from tailrace.storage.access import place
from tailrace.storage.store import Storage
from tailrace.targets.lake.iceberg.catalog import catalog_options

ODD = ["a b", "größe", "100%", "%41", "a+b", "a=b", "it's", "a,b;c", "(x)&$@!"]


@pytest.mark.parametrize("name", ODD)
def test_storage_and_the_catalog_are_given_the_same_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    target = TargetSpec(type="iceberg", location=folder.as_uri())
    storage = Storage.open(target.lake)
    storage.create("x/1", b"1")
    assert (folder / "x" / "1").read_bytes() == b"1"
    assert storage.root == f"file://{folder}" == catalog_options(target, {})["warehouse"]
    assert Storage.open(target.lake).get(f"{storage.root}/x/1") == b"1", "by its absolute URI"


@pytest.mark.parametrize("name", ODD)
def test_keys_of_an_object_store_are_taken_as_they_stand(name: str) -> None:
    assert place(f"s3://bucket/{name}/x/") == ("s3", "bucket", f"{name}/x")


@pytest.mark.parametrize("bad", ["#", "?", "*", "\\", "[a]", "{b}", "\t", "\n", "%23", "%3F", "%00", "%0a"])
def test_what_some_reader_takes_for_something_else_is_refused_by_name(bad: str) -> None:
    with pytest.raises(InvalidManifest, match="location"):
        place(f"file:///lake/{bad}/x")


@pytest.mark.parametrize("bad", ["#", "?", "..", ".", "a//b"])
def test_an_object_store_s_location_has_no_empty_part_and_no_dots(bad: str) -> None:
    with pytest.raises(InvalidManifest, match="location"):
        place(f"s3://bucket/x/{bad}/y")


def test_a_local_location_is_normalised() -> None:
    assert place("file:///lake/../log//a/./b/") == ("file", "", "/log/a/b")
    with pytest.raises(InvalidManifest, match="UTF-8"):
        place("file:///lake/%ff")
    assert StorageLocation(location="file:///x").location == "file:///x"


def test_a_password_before_the_bucket_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidManifest, match=r"user name before it: …@lake\.") as caught:
        Storage.open(StorageLocation(location="s3://key:hunter2@lake/x"))
    assert "hunter2" not in str(caught.value)
