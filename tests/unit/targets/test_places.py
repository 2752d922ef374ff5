"""Places that only a person can put right are refused before anything is made, and trying them leaves nothing."""

from pathlib import Path

import pytest

from support.resources import replicator
from tailrace.contract.resources import Replicator, ReplicatorSpec, Storage
from tailrace.errors import InvalidManifest
from tailrace.storage.access import StorageRefused
from tailrace.targets import places


def _spec(target: str, storage: str) -> ReplicatorSpec:
    document = replicator()
    document["spec"]["target"] = {"type": "delta", "location": target}
    document["spec"]["storage"] = {"location": storage}
    return Replicator.model_validate(document).spec


@pytest.mark.parametrize(
    ("target", "storage"),
    [
        ("file:///x/lake", "file:///x/lake"),
        ("file:///x/lake/", "file:///x/lake/log"),
        ("file:///x/lake/a/..", "file:///x/lake/log"),
        ("file:///x/l%61ke", "file:///x/lake"),
        ("file:///x/lake/sub", "file:///x//lake"),
        ("s3://b/lake", "s3://b/lake/log/"),
        ("s3://b/lake", "s3://b"),
    ],
)
def test_target_and_change_log_may_not_share_a_folder(target: str, storage: str) -> None:
    with pytest.raises(InvalidManifest, match="location"):
        places.require_apart(_spec(target, storage))


@pytest.mark.parametrize(
    ("target", "storage"),
    [("file:///x/lake", "file:///x/lake2"), ("s3://a/x", "s3://b/x"), ("s3://lake/shop", "s3://lake/_tailrace/shop")],
)
def test_places_side_by_side_are_fine(target: str, storage: str) -> None:
    places.require_apart(_spec(target, storage))


def test_a_link_does_not_hide_that_two_places_are_one(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(InvalidManifest, match="one inside the other"):
        places.require_apart(_spec(f"file://{tmp_path}/lake", f"file://{tmp_path}/link/log"))


def test_trying_a_place_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("new/deep/log", "kept"):
        assert places.probe(Storage(location=f"file://{tmp_path}/{name}"))
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/none", "/sys/none", "n" * 300])
def test_a_place_that_can_never_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(StorageRefused) as refused:
        places.probe(Storage(location=f"file://{tmp_path / place}"))
    assert refused.value.exit_code == 10 and str(tmp_path / place) in refused.value.message
