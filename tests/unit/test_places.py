"""Places that only a person can put right are refused before anything is made."""

from pathlib import Path

import pytest

from support.resources import replicator
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.errors import InvalidManifest
from tailrace.places import Places


def _spec(target: str, storage: str) -> ReplicatorSpec:
    document = replicator()
    document["spec"]["target"] = {"type": "delta", "location": target}
    document["spec"]["storage"] = {"location": storage}
    return Replicator.model_validate(document).spec


@pytest.mark.parametrize(
    ("target", "storage"),
    [
        ("file:///x//lake", "file:///x/lake"),
        ("file:///x/lake/", "file:///x/lake/log"),
        ("file:///x/lake/a/..", "file:///x/lake/log"),
        ("file:///x/l%61ke", "file:///x/lake"),
        ("file:///x/lake/sub", "file:///x//lake"),
        ("s3://b/lake/", "s3://b/lake/log/"),
        ("s3://b/lake", "s3://b/"),
    ],
)
def test_target_and_change_log_may_not_share_a_folder(target: str, storage: str) -> None:
    """However they are written: what the texts alone show, the manifest's model has refused before."""
    with pytest.raises(InvalidManifest, match="location"):
        Places(_spec(target, storage)).require_apart()


@pytest.mark.parametrize(
    ("target", "storage"),
    [("file:///x/lake", "file:///x/lake2"), ("s3://a/x", "s3://b/x"), ("s3://lake/shop", "s3://lake/_tailrace/shop")],
)
def test_places_side_by_side_are_fine(target: str, storage: str) -> None:
    Places(_spec(target, storage)).require_apart()


def test_a_link_does_not_hide_that_two_places_are_one(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(InvalidManifest, match="are nested"):
        Places(_spec(f"file://{tmp_path}/lake", f"file://{tmp_path}/link/log")).require_apart()
