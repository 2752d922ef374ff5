"""`podTemplate`: a pod's template in Kubernetes' own words (core/v1), passed on as it is. Pure.

The operator merges it under its own fields, and the API server judges the result; `tailrace run` passes it over. What
the operator needs itself, and what would let a pod reach its node, is refused where the manifest is read.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from tailrace.contract.base import Model

Json = dict[str, Any]
Refused = Mapping[str, str]
"""Fields that cannot be set, each with the fix."""

CONTAINER = "tailrace"
"""The name of the container in which driver and executors run: a template adds to it by this name."""

_NODE = "pods do not reach into their node: remove it"
_RESTRICTED = "every container fits Pod Security level restricted: remove it"
_ACCOUNT = "use serviceAccountName of the Replicator"
_IMAGE = "use image and imagePullPolicy of the Replicator"
_OPERATORS = "the operator sets it: remove it"
_IN_POD = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), _NODE),
    "securityContext": _RESTRICTED,
    **dict.fromkeys(("serviceAccountName", "serviceAccount", "automountServiceAccountToken"), _ACCOUNT),
    **dict.fromkeys(("enableServiceLinks", "terminationGracePeriodSeconds"), _OPERATORS),
}
_IN_VOLUMES = {"hostPath": _NODE}
_IN_CONTAINERS = {"securityContext": _RESTRICTED}
_IN_OURS = {
    **_IN_CONTAINERS,
    **dict.fromkeys(("image", "imagePullPolicy"), _IMAGE),
    **dict.fromkeys(("command", "args", "terminationMessagePath", "terminationMessagePolicy"), _OPERATORS),
    **dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe"), _OPERATORS),
}
_LABEL = re.compile(r"(tailrace\.dev/|app\.kubernetes\.io/|spark-).*"), "the operator and Spark set it: remove it"
_VOLUME = re.compile("tailrace-.*"), "such names are the operator's: choose another"
_VARIABLE = (
    re.compile("TAILRACE_.*|HOME|POD_IP|POD_NAME|POD_NAMESPACE|XDG_STATE_HOME"),
    "the operator sets it: remove it; Spark's settings go to sparkConf",
)
_PATH = re.compile("/tmp/*|/var/lib/tailrace/*|/etc/tailrace(/.*)?"), "the operator mounts it: choose another path"
_AMOUNT = re.compile("cpu|memory"), "use cores, cpuRequest, cpuLimit, memory, memoryOverhead and memoryRequest"


def faults(spec: Json) -> Iterator[str]:
    """Everything in a pod's spec that is refused: the field, its value and the fix."""
    yield from _set("", spec, _IN_POD)
    for volume in items(spec, "volumes"):
        place = f"volumes[{volume.get('name')}]"
        yield from _named(f"{place}.name: ", [volume.get("name")], _VOLUME)
        yield from _set(f"{place}.", volume, _IN_VOLUMES)
    for field in ("initContainers", "containers"):
        for container in items(spec, field):
            place, ours = f"{field}[{container.get('name')}].", container.get("name") == CONTAINER
            yield from _set(place, container, _IN_OURS if ours else _IN_CONTAINERS)
            yield from _in_ours(place, container) if ours else ()


def _in_ours(place: str, container: Json) -> Iterator[str]:
    yield from _named(f"{place}env: ", (one.get("name") for one in items(container, "env")), _VARIABLE)
    paths = (one.get("mountPath") for one in items(container, "volumeMounts"))
    yield from _named(f"{place}volumeMounts: ", paths, _PATH)
    resources = container.get("resources")
    for kind, amounts in resources.items() if isinstance(resources, dict) else ():
        yield from _named(f"{place}resources.{kind}: ", amounts if isinstance(amounts, dict) else (), _AMOUNT)


def items(part: Json, field: str) -> list[Json]:
    """The objects in a list of the template. What has another form is left to the API server, which knows the form."""
    found = part.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _set(place: str, part: Json, refused: Refused) -> Iterator[str]:
    for field, fix in refused.items():
        if field in part:
            shown = f" (found {json.dumps(part[field])})" if isinstance(part[field], str | int) else ""
            yield f"{place}{field}{shown}: {fix}"


def _named(place: str, names: Iterable[object], refused: tuple[re.Pattern[str], str]) -> Iterator[str]:
    pattern, fix = refused
    yield from (f"{place}{name}: {fix}" for name in names if isinstance(name, str) and pattern.fullmatch(name))


def _pod(spec: Json) -> Json:
    if found := list(faults(spec)):
        raise ValueError("; ".join(found))
    return spec


def _labels(given: dict[str, str]) -> dict[str, str]:
    if found := list(_named("", given, _LABEL)):
        raise ValueError("; ".join(found))
    return given


Text = Annotated[str, StringConstraints(max_length=4096)]
Labels = Annotated[dict[str, Text], Field(max_length=50), AfterValidator(_labels)]
Spec = Annotated[Json, AfterValidator(_pod), Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class TemplateMetadata(Model):
    """The pod's labels and annotations."""

    labels: Labels = Field(default_factory=dict)
    """Labels, in addition to the operator's."""
    annotations: Labels = Field(default_factory=dict)
    """Annotations, in addition to the operator's."""


class PodTemplate(Model):
    """A core/v1 PodTemplateSpec, which the operator merges under its own fields."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the pod."""
    spec: Spec = Field(default_factory=dict)
    """A core/v1 PodSpec. Container `tailrace` is the operator's: what it says is added to it. Other containers run
    beside it."""
