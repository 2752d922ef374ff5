"""Merges parts of pods as Kubernetes' strategic merge does: a template of the user under the operator's fields. Pure.

Maps are merged, lists by the key that Kubernetes gives them, and tolerations are added; of anything else the upper one
counts.
"""

from typing import Any

_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets"), "name"),
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
_WHOLE = ("volumes", "env", "volumeMounts")
"""Lists whose items have alternatives among their fields: two of a name are not mixed."""


def merged(under: Any, over: Any, field: str = "") -> Any:
    """Both of a document, or of the values of one field in them."""
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **{name: merged(under.get(name), value, name) for name, value in over.items()}}
    if isinstance(under, list) and isinstance(over, list):
        if field == "tolerations":
            return [*over, *(one for one in under if one not in over)]
        if field in _KEYS:
            return _by_key(under, over, field)
    return over


def _by_key(under: list[Any], over: list[Any], field: str) -> list[Any]:
    """The upper ones first: the first container of a pod is the operator's."""
    lower = {_key(one, field): one for one in under}
    first = [one if field in _WHOLE else merged(lower.get(_key(one, field)), one) for one in over]
    taken = [_key(one, field) for one in over]
    return [*first, *(one for one in under if _key(one, field) not in taken)]


def _key(item: Any, field: str) -> str:
    return str(item.get(_KEYS[field])) if isinstance(item, dict) else str(item)
