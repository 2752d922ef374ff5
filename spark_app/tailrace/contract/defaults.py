"""Specs without fields that were not set, so that versions with other fields and other defaults understand each other.

A field that a version adds is in no document until it is set: an older driver never meets it. A default that a version
changes is marked (`base.FormerDefault`). The API server has written the former one into every object that there is: for
them it is not set, and its hash is as before. In what drivers read such a field always stands, because a driver of
another version has another default.
"""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from tailrace.contract.base import FormerDefault

Json = dict[str, Any]


def for_reading(model: BaseModel) -> Json:
    """The form of a document that another version reads as this one does."""
    return _dump(model, (), always=True)


def for_comparing(model: BaseModel, without: Collection[str] = ()) -> Json:
    """A form that is equal in every version for an object that has not been changed. `without`: names of fields."""
    return _dump(model, without, always=False)


def _dump(model: BaseModel, without: Collection[str], always: bool) -> Json:
    found = model.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(without))
    _set_marked(model, found, without, always)
    return found


def _set_marked(model: BaseModel, dumped: Json, without: Collection[str], always: bool) -> None:
    """Puts in, or takes out, the fields of this model and of those in it whose default has changed."""
    for name, field in type(model).model_fields.items():
        if name in without:
            continue
        key, value = field.alias or name, getattr(model, name)
        former = next((mark for mark in field.metadata if isinstance(mark, FormerDefault)), None)
        if former is not None:
            dumped.pop(key, None)
            if always or value != former.value:
                dumped[key] = value
        elif isinstance(value, BaseModel):
            before = dumped.pop(key, None)
            inner = dict(before or {})
            _set_marked(value, inner, (), always)
            if inner or before == {}:
                dumped[key] = inner
        elif isinstance(value, tuple) and key in dumped:
            for one, of_one in zip(value, dumped[key], strict=True):
                if isinstance(one, BaseModel):
                    _set_marked(one, of_one, (), always)
