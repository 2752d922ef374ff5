"""Hashes by which the operator knows what it applied. Pure.

Hashes stand for what users said, not for what this version of the operator makes of it: an upgraded operator renders
differently and must not restart a single stream for it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tailrace.contract import defaults
from tailrace.contract.resources import LIVE_FIELDS, OPERATOR_FIELDS, ReplicatorSpec

LENGTH = 32


def digest(value: object) -> str:
    """The hash of any JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def spec_hash(spec: ReplicatorSpec) -> str:
    """The hash of everything in the spec that the driver uses."""
    return _hash(spec, OPERATOR_FIELDS)


def template_hash(spec: ReplicatorSpec, image: str, data_hashes: Mapping[str, str]) -> str:
    """The hash of everything whose change needs another pod: what a running driver takes over is left out.
    `data_hashes`: of the referenced Secrets and ConfigMaps, by name."""
    return digest([_hash(spec, OPERATOR_FIELDS | LIVE_FIELDS), image, dict(data_hashes)])


def _hash(spec: ReplicatorSpec, without: frozenset[str]) -> str:
    return digest(defaults.for_comparing(spec, without))


def content_hash(document: Mapping[str, Any]) -> str:
    return digest(document)


def data_hash(document: Mapping[str, Any]) -> str:
    """The hash of a Secret's or ConfigMap's contents. The values themselves are not kept."""
    return digest([document.get("data") or {}, document.get("binaryData") or {}])
