"""The spec that should run: the newest, or the last valid one while the newest is not. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.decide.model import Blocker, Desired, Limits
from tailrace_operator.decide.mounts import unmounted
from tailrace_operator.observe.model import ObservedReplicator
from tailrace_operator.resources import hashing, names, references
from tailrace_operator.status.conditions import Reason

_NAME = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")


def resolve(observed: ObservedReplicator, limits: Limits) -> Desired:
    found = parse(observed.meta.name, observed.spec)
    if isinstance(found, Blocker):
        last = parse(observed.meta.name, observed.running_spec) if observed.running_spec is not None else found
        if isinstance(last, Blocker):
            return Desired(None, -1, "", None, limits.image, found)
        # Of the last valid spec these are not remembered: what the newest says there may be all that is right.
        policy = "NotReady" if observed.spec.get("onTableFailure") == "NotReady" else "Degrade"
        last = last.model_copy(update={"suspend": observed.spec.get("suspend") is True, "on_table_failure": policy})
        runs_on = f"{found.message} Generation {observed.status.applied_generation} keeps running."
        return _with_data(
            observed, last, observed.status.applied_generation, limits, Blocker(found.reason, runs_on, True)
        )
    return _with_data(observed, found, observed.meta.generation, limits, None)


def parse(name: str, spec: Mapping[str, Any]) -> ReplicatorSpec | Blocker:
    if len(name) > names.MAX_NAME or not _NAME.match(name):
        rule = f"at most {names.MAX_NAME} letters, digits and hyphens, beginning with a letter"
        return Blocker(Reason.INVALID_SPEC, f"metadata.name is {name!r}: use {rule}.", True)
    try:
        found = ReplicatorSpec.model_validate(spec)
    except ValidationError as error:
        return Blocker(Reason.INVALID_SPEC, f"spec: {faults(error)}", True)
    lacking = unmounted(found)
    return Blocker(Reason.INVALID_SPEC, f"spec: {lacking}", True) if lacking else found


def faults(error: ValidationError) -> str:
    """Path and reason of each fault; values only where they are short and cannot be a secret in the wrong place."""
    parts = []
    for item in error.errors(include_url=False):
        path = ".".join(str(p) for p in item["loc"]) or "spec"
        given = item.get("input")
        known = item["type"] != "extra_forbidden" and not {"env", "credentials"} & set(item["loc"])
        plain = known and isinstance(given, str | int | float)
        shown = f" (found {given!r})" if plain and len(repr(given)) <= 80 else ""
        parts.append(f"{path}: {str(item['msg']).removeprefix('Value error, ')}{shown}.")
    return " ".join(parts)


def _with_data(
    observed: ObservedReplicator, spec: ReplicatorSpec, generation: int, limits: Limits, blocker: Blocker | None
) -> Desired:
    image = spec.image or limits.image
    made = {
        place: observed.data_hashes.get(place) for place in map("Secret/{}".format, names.secrets(observed.meta.name))
    }
    used = {place: observed.data_hashes.get(place) for place in references.data(spec)}
    missing = [place for place, found in used.items() if found is None]
    hashes = {place: found for place, found in {**used, **made}.items() if found}
    spec_hash = hashing.spec_hash(spec)
    if missing:
        return Desired(spec, generation, spec_hash, None, image, blocker or _absent(observed, missing[0]))
    template_hash = hashing.template_hash(spec, image, hashes)
    return Desired(spec, generation, spec_hash, template_hash, image, blocker, hashing.digest(used), hashes)


def _absent(observed: ObservedReplicator, place: str) -> Blocker:
    kind, _, name = place.partition("/")
    reason = Reason.SECRET_NOT_FOUND if kind == "Secret" else Reason.CONFIG_MAP_NOT_FOUND
    text = f"{kind} {name!r} does not exist in namespace {observed.meta.namespace}; create it."
    return Blocker(reason, text, False)
