"""What one account asked of the API server of a one-node cluster, out of its audit log."""

import json
from dataclasses import dataclass

from cluster.node import Node


@dataclass(frozen=True, order=True)
class ApiRequest:
    resource: str
    """With its subresource: `pods`, `pods/log`."""
    verb: str
    code: int
    """Of the answer."""


def requests_of(node: Node, space: str, account: str) -> set[ApiRequest]:
    """The different ones, since the cluster's start."""
    user = f"system:serviceaccount:{space}:{account}"
    events = (json.loads(line) for line in node.plane.audit_log.read_text().splitlines() if user in line)
    return {_request(event) for event in events if event["user"]["username"] == user and "objectRef" in event}


def _request(event: dict[str, dict[str, str]]) -> ApiRequest:
    about = event["objectRef"]
    part = f"/{about['subresource']}" if "subresource" in about else ""
    return ApiRequest(about["resource"] + part, str(event["verb"]), int(event["responseStatus"]["code"]))
