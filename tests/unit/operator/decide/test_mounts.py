"""A local folder in a pod is a claim that driver and executors mount, or the spec is refused by name."""

import pytest

from support.observed import LIMITS, SPEC, condition, observed
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide.mounts import unmounted
from tailrace_operator.decide.replicator import decide

CLAIM = {"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "data"}}
LOCAL = {"storage": {"location": "file:///data/log"}, "target": {"type": "delta", "location": "file:///data/lake"}}


def spec(**pods: object) -> ReplicatorSpec:
    return ReplicatorSpec.model_validate(SPEC | LOCAL | pods)


def test_a_claim_that_both_mount_is_right_and_without_executors_the_drivers_is_enough() -> None:
    assert unmounted(ReplicatorSpec.model_validate(SPEC)) == ""
    assert unmounted(spec(driver={"volumes": [CLAIM]}, executors={"volumes": [CLAIM]})) == ""
    assert unmounted(spec(driver={"volumes": [CLAIM]}, executors={"max": 0})) == ""


@pytest.mark.parametrize(
    ("volumes", "why"),
    [
        ([], "nothing is mounted"),
        ([CLAIM | {"mountPath": "/dat"}], "a longer name is another folder"),
        ([CLAIM | {"readOnly": True}], "nothing can be written"),
        ([{"name": "data", "mountPath": "/data", "emptyDir": {}}], "it ends with the pod"),
        ([CLAIM, {"name": "log", "mountPath": "/data/log", "emptyDir": {}}], "another volume is mounted inside"),
    ],
)
def test_each_location_that_is_on_no_claim_is_named_with_the_pods_that_lack_it(volumes: list[object], why: str) -> None:
    text = unmounted(spec(driver={"volumes": [CLAIM]}, executors={"volumes": volumes}))
    assert "storage.location: file:///data/log must be on a persistentVolumeClaim" in text, why
    assert "; executors.volumes have none there." in text, why
    assert "driver.volumes" not in text


def test_a_replicator_whose_pods_would_each_have_a_folder_of_their_own_is_stalled() -> None:
    decision = decide(observed(spec=SPEC | LOCAL), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled is not None
    assert stalled.reason == "InvalidSpec"
    assert "driver.volumes and executors.volumes" in stalled.message
