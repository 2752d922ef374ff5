"""Reads documents that another version of Tailrace wrote: a stored status, a driver's answer. Pure.

The models are closed, so a field of a newer version would refuse the whole. Of a driver's answer unknown fields are
passed over; of a stored status also what cannot be understood: it is derived again.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import ValidationError

from tailrace.contract.resources import Model

Document = TypeVar("Document", bound=Model)


def known(kind: type[Document], raw: Mapping[str, Any]) -> Document:
    """The document without fields that this version does not know; raises `ValidationError` for anything else."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors(include_url=False) if item["type"] == "extra_forbidden"]
        if not unknown:
            raise
        rest = deepcopy(dict(raw))
        for path in unknown:
            _remove(rest, path)
        return kind.model_validate(rest)


def _remove(document: Any, path: Sequence[int | str]) -> None:
    for step in path[:-1]:
        document = document[step]
    del document[path[-1]]


def load(kind: type[Document], document: Mapping[str, Any] | None) -> Document:
    """The status, without what cannot be understood."""
    raw = dict(document or {})
    try:
        return known(kind, raw)
    except ValidationError:
        return kind.model_validate({name: value for name, value in raw.items() if _fits(kind, name, value)})


def _fits(kind: type[Document], name: str, value: object) -> bool:
    try:
        kind.model_validate({name: value})
    except ValidationError:
        return False
    return True


def dump(status: Model) -> dict[str, Any]:
    """The status as the API server stores it; fields without a value are left out."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
