"""The resource models: what users may write, and what they are told when they may not."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from support.resources import POD, RIGHT, TEMPLATES, UNKNOWN, WRONG, Refused, replicator
from tailrace.contract.resources import Replicator, SnapshotRequest, StorageLocation, TargetSpec
from tailrace.places import Places
from tailrace.spark.settings import settings

KINDS: dict[str, type[Replicator] | type[SnapshotRequest]] = {
    "Replicator": Replicator,
    "SnapshotRequest": SnapshotRequest,
}


def read(document: dict[str, Any]) -> Replicator | SnapshotRequest:
    return KINDS[document["kind"]].model_validate(document)


def test_a_minimal_replicator_has_the_documented_defaults() -> None:
    spec = Replicator.model_validate(replicator()).spec
    assert (spec.source.tcp_port, spec.snapshot.initial, spec.suspend) == (5432, True, False)
    assert (spec.deletion_policy, spec.image_pull_policy) == ("Retain", "IfNotPresent")
    assert (spec.executors.min, spec.executors.most) == (0, 1)
    assert spec.storage.path_style


def test_a_target_shares_with_storage_only_how_a_store_is_reached() -> None:
    place = {"location": "s3://lake/shop", "endpoint": "https://s3", "region": "r", "pathStyle": True}
    target = TargetSpec.model_validate(place | {"type": "delta", "credentials": {"file": "/keys"}})
    assert not issubclass(TargetSpec, StorageLocation)
    assert target.lake == StorageLocation.model_validate(place | {"credentials": {"file": "/keys"}})


@pytest.mark.parametrize("document", RIGHT, ids=lambda document: document["metadata"]["name"])
def test_camel_case_outside_round_trips(document: dict[str, Any]) -> None:
    one = read(document)
    assert read(one.model_dump(by_alias=True, mode="json")) == one


@pytest.mark.parametrize("case", [*WRONG, *TEMPLATES, *UNKNOWN], ids=lambda case: case.name)
def test_a_wrong_manifest_is_refused_by_name(case: Refused) -> None:
    with pytest.raises(ValidationError) as caught:
        read(case.document)
    assert case.model in str(caught.value)


def test_a_type_that_delta_does_not_have_is_refused_before_anything_is_touched() -> None:
    options = [{"match": "a.b", "as": {"at": "time"}}]
    iceberg = {"type": "iceberg", "location": "file:///lake"}
    assert read(replicator(options=options, target=iceberg)).spec
    delta = replicator(options=options, target={"type": "delta", "location": "file:///lake"})
    with pytest.raises(
        ValidationError, match=r"as: at: time .* the target does not have \(target.type: delta\): write at: text"
    ):
        read(delta)


def test_what_concerns_pods_changes_nothing_outside_kubernetes(tmp_path: Path) -> None:
    plain = POD.keys() - {"cores", "memory"}
    given = Replicator.model_validate(replicator(driver=POD, executors=POD, image="x", serviceAccountName="y"))
    bare = Replicator.model_validate(replicator(driver={k: v for k, v in POD.items() if k not in plain}))
    needs = Places(given.spec).target.spark()
    assert settings(given.spec, needs, tmp_path, {}) == settings(bare.spec, needs, tmp_path, {})
