"""Reads a status that this or another version of the operator wrote. Pure.

The models are closed, so a field of a newer version would refuse the whole; here each top-level field is taken by
itself, and one that this version does not understand is left out: it is derived again.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from tailrace.contract.resources import Model

Status = TypeVar("Status", bound=Model)


def load(kind: type[Status], document: Mapping[str, Any] | None) -> Status:
    """The status, without what cannot be understood."""
    raw = dict(document or {})
    try:
        return kind.model_validate(raw)
    except ValidationError:
        return kind.model_validate({name: value for name, value in raw.items() if _fits(kind, name, value)})


def _fits(kind: type[Status], name: str, value: object) -> bool:
    try:
        kind.model_validate({name: value})
    except ValidationError:
        return False
    return True


def dump(status: Model) -> dict[str, Any]:
    """As the API server stores it; fields without a value are left out."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
