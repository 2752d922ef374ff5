"""Secrets and ConfigMaps that a spec names. Pure."""

from collections.abc import Iterator
from typing import Any

from tailrace.contract.resources import ReplicatorSpec

_FIELDS = {
    **dict.fromkeys(("secret", "secretKeyRef", "secretRef"), "Secret"),
    **dict.fromkeys(("configMap", "configMapKeyRef", "configMapRef"), "ConfigMap"),
}
"""Fields of volumes, projected volumes, `valueFrom` and `envFrom`, and the kind that each refers to."""


def secrets_of_places(spec: ReplicatorSpec) -> tuple[str, ...]:
    """Secrets that every pod finds at `/etc/tailrace/secrets/<name>`: of source, target, change logs and masks."""
    masks = spec.mask_key.secret_name if spec.mask_key is not None else None
    named = [*spec.source.secrets, *spec.target.secrets, *spec.storage.secrets, masks]
    named += spec.follow.secrets if spec.follow is not None else []
    return tuple(sorted({name for name in named if name is not None}))


def mounted_secrets(spec: ReplicatorSpec) -> tuple[str, ...]:
    """The driver's: with those by which it tells others. No other pod waits for one that is gone."""
    notices = spec.notifications.credentials.secret_name if spec.notifications is not None else None
    lineage = spec.lineage.secret_name if spec.lineage is not None else None
    telling = [name for name in (notices, lineage) if name is not None]
    return tuple(sorted({*secrets_of_places(spec), *telling}))


def data(spec: ReplicatorSpec) -> tuple[str, ...]:
    """`Secret/name` and `ConfigMap/name` of all whose content the pods use: a change restarts the driver."""
    found = {f"Secret/{name}" for name in mounted_secrets(spec)}
    for pod in (spec.driver, spec.executors):
        found |= set(_in(pod.pod_template.spec))
    return tuple(sorted(found))


def _in(part: Any) -> Iterator[str]:
    """The required ones in a part of a pod's template, by the names of the fields that refer to them."""
    if isinstance(part, list):
        for item in part:
            yield from _in(item)
    elif isinstance(part, dict):
        for field, value in part.items():
            kind = _FIELDS.get(field)
            if kind is not None and isinstance(value, dict) and not value.get("optional"):
                name = value.get("name") or value.get("secretName")
                yield from [f"{kind}/{name}"] if isinstance(name, str) else []
            yield from _in(value)
