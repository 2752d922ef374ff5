"""What the operator takes from documents of the API server."""

import json
from typing import Any

import pytest

from tailrace.contract.pod_template import CONTAINER
from tailrace_operator.observe import parse
from tailrace_operator.observe.model import LogCheck
from tailrace_operator.status import times

CREATED, ENDED = "2026-05-01T12:00:00Z", "2026-05-01T12:04:00Z"
DEADLINE = {
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}


def asking(status: dict[str, Any], **state: Any) -> dict[str, Any]:
    """A pod of the CronJob that asks how much log the source keeps."""
    statuses = [{"name": CONTAINER, "state": state}] if state else []
    head = {"name": "shop-check-1", "uid": "u", "namespace": "shop", "creationTimestamp": CREATED}
    return {"metadata": head, "status": {"containerStatuses": statuses, **status}}


def ended(code: int, message: str = "") -> dict[str, Any]:
    return {"exitCode": code, "reason": "Error", "message": message, "finishedAt": ENDED}


def words(**more: Any) -> str:
    return json.dumps({"kind": "last-words", **more})


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available."}
FAULT = {"name": "SourceUnreachable", "message": "no route to db", "fix": "Make one.", "where": "source"}
FAILED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a fault": (
        asking({"phase": "Failed"}, terminated=ended(11, words(fault=FAULT))),
        ENDED,
        "no route to db. Fix: Make one.",
    ),
    "no words": (asking({"phase": "Failed"}, terminated=ended(137)), ENDED, "exit code 137"),
    "its deadline": (asking(DEADLINE, terminated=ended(137)), ENDED, "shop-check-1: DeadlineExceeded: Pod was active"),
    "its deadline, before it began": (
        asking(DEADLINE, waiting={"reason": "ContainerCreating"}),
        CREATED,
        "specified deadline. Its container never began; see `kubectl describe pod shop-check-1`",
    ),
    "no node": (asking({"phase": "Pending", "conditions": [UNSCHEDULED]}), CREATED, "cannot be scheduled: 0/3 nodes"),
    "no image": (
        asking({"phase": "Pending"}, waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling"}),
        CREATED,
        "shop-check-1: ImagePullBackOff: Back-off pulling",
    ),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_check_of_the_log_that_fails_says_why_and_one_that_cannot_begin_does_too(case: str) -> None:
    document, at, why = FAILED[case]
    check = parse.log_check(document)
    assert check is not None
    assert (check.at, check.bytes) == (times.seconds(at), None) and why in check.error


def test_a_check_of_the_log_that_may_yet_answer_says_nothing() -> None:
    assert parse.log_check(asking({"phase": "Pending"})) is None
    assert parse.log_check(asking({"phase": "Pending"}, waiting={"reason": "ContainerCreating"})) is None
    assert parse.log_check(asking({"phase": "Running"}, running={"startedAt": CREATED})) is None


def test_a_check_of_the_log_that_answered_counts_however_its_pod_ended() -> None:
    answer = words(retained={"at": 7.0, "bytes": 5 << 20})
    assert parse.log_check(asking(DEADLINE, terminated=ended(137, answer))) == LogCheck(7.0, 5 << 20)


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, False),
        ({"halt": {"reason": "Fenced", "message": "CutOver"}}, False),
        ({"halt": {"reason": "CutOver", "message": "done"}}, True),
    ],
)
def test_only_the_halt_of_a_replicator_says_that_a_cutover_has_ended_it(status: dict[str, Any], found: bool) -> None:
    assert parse.cut_over({"status": status}) is found
