"""The resource models: what users may write, and what they are told when they may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.contract.resources import Replicator, SnapshotRequest

SOURCE = {"type": "postgresql", "host": "db", "database": "shop", "username": "tailrace", "passwordFile": "/run/pw"}
SPEC: dict[str, Any] = {
    "source": SOURCE,
    "tables": {"include": ["public.*"]},
    "target": {"type": "delta", "location": "file:///lake"},
    "storage": {"location": "s3://lake/_tailrace/shop", "endpoint": "http://s3:7070", "pathStyle": True},
}


def replicator(**spec: object) -> Replicator:
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "shop"}}
    return Replicator.model_validate(document | {"spec": SPEC | spec})


def request(**spec: object) -> SnapshotRequest:
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": {"name": "again"}}
    return SnapshotRequest.model_validate(document | {"spec": {"replicator": "shop", "tables": ["public.a"]} | spec})


def test_a_minimal_replicator_has_the_documented_defaults() -> None:
    spec = replicator().spec
    assert (spec.source.port, spec.snapshot.initial, spec.suspend) == (5432, True, False)
    assert spec.deletion_policy == "Retain"
    assert spec.storage.path_style


def test_camel_case_outside_round_trips() -> None:
    one = replicator(restartNonce=3)
    assert Replicator.model_validate(one.model_dump(by_alias=True)) == one


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"tabels": {}}, "tabels"),
        ({"tables": {"include": []}}, "at least 1 item"),
        ({"tables": {"include": ["orders"]}}, "include"),
        ({"target": {"type": "hudi", "location": "file:///x"}}, "'delta' or 'iceberg'"),
        ({"target": {"type": "iceberg", "location": "s3://b/x"}}, "no atomic commit"),
        ({"target": {"type": "delta", "location": "file:///x", "catalog": {"type": "rest"}}}, "iceberg only"),
        ({"storage": {"location": "/tmp/x"}}, "location"),
        ({"source": SOURCE | {"credentials": {"file": "/x"}}}, "not both"),
        ({"source": SOURCE | {"passwordFile": None, "credentials": {}}}, "exactly one"),
        ({"retry": {"time": "soon"}}, "retry.time"),
    ],
)
def test_a_wrong_replicator_is_refused_by_name(spec: dict[str, object], part: str) -> None:
    with pytest.raises(ValidationError) as caught:
        replicator(**spec)
    assert part in str(caught.value)


def test_a_request_takes_a_filter_or_keys_and_keys_for_one_table() -> None:
    assert request(where="region = 'eu'").spec.where
    for wrong in ({"where": "true", "keys": [["1"]]}, {"keys": [["1"]], "tables": ["public.a", "public.b"]}):
        with pytest.raises(ValidationError):
            request(**wrong)
