"""A local folder in a pod is a claim that driver and executors mount, or the spec is refused by name."""

import pytest

from support.observed import LIMITS, SPEC, condition, observed
from support.resources import Json, on_claim, template
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide.mounts import unmounted
from tailrace_operator.decide.replicator import decide

DATA = {"name": "data", "mountPath": "/data"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SCRATCH: Json = {"name": "scratch", "emptyDir": {}}
MOUNTED = {"podTemplate": on_claim("/data", "data")}
LOCAL = {"storage": {"location": "file:///data/log"}, "target": {"type": "delta", "location": "file:///data/lake"}}


def spec(**pods: object) -> ReplicatorSpec:
    return ReplicatorSpec.model_validate(SPEC | LOCAL | pods)


def test_a_claim_that_both_mount_is_right_and_without_executors_the_drivers_is_enough() -> None:
    assert unmounted(ReplicatorSpec.model_validate(SPEC)) == ""
    assert unmounted(spec(driver=MOUNTED, executors=MOUNTED)) == ""
    assert unmounted(spec(driver=MOUNTED, executors={"max": 0})) == ""


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        ([], "nothing is mounted"),
        ([DATA | {"mountPath": "/dat"}], "a longer name is another folder"),
        ([DATA | {"readOnly": True}], "nothing can be written"),
        ([DATA | {"name": "scratch"}], "it ends with the pod"),
        ([DATA, {"name": "scratch", "mountPath": "/data/log"}], "another volume is mounted inside"),
    ],
)
def test_each_location_that_is_on_no_claim_is_named_with_the_pods_that_lack_it(mounts: list[Json], why: str) -> None:
    pod = template([{"volumeMounts": mounts}], [CLAIM, SCRATCH])
    text = unmounted(spec(driver=MOUNTED, executors={"podTemplate": pod}))
    assert "storage.location: file:///data/log must be on a persistentVolumeClaim" in text, why
    assert "; executors.podTemplate has none there." in text, why
    assert "driver.podTemplate" not in text


def test_a_replicator_whose_pods_would_each_have_a_folder_of_their_own_is_stalled() -> None:
    decision = decide(observed(spec=SPEC | LOCAL), LIMITS)
    stalled = condition(decision, "Stalled")
    assert stalled.reason == "InvalidSpec"
    assert "driver.podTemplate and executors.podTemplate" in stalled.message


def test_the_log_that_is_followed_is_on_a_claim_of_the_driver_alone() -> None:
    follow = {"follow": {"location": "file:///other/log"}}
    assert "follow.location: file:///other/log must be on a persistentVolumeClaim that the driver mounts" in unmounted(
        spec(driver=MOUNTED, executors=MOUNTED, **follow)
    )
    whole = {"podTemplate": on_claim("/", "data")}
    assert unmounted(spec(driver=whole, executors=MOUNTED, **follow)) == ""
