"""What a document holds when another version wrote it or will read it, and whose defaults changed when."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from support.resources import replicator
from tailrace.contract.base import FormerDefault, Model
from tailrace.contract.defaults import for_comparing, for_reading
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import Replicator, ReplicatorSpec, SnapshotRequestSpec

FIRST = Path(__file__).parent / "samples" / "first_defaults.json"


class Apply(Model):
    interval: Annotated[str, FormerDefault("5s")] = "1s"
    batch: int = 10


class Options(Model):
    tables: str
    kept: Annotated[bool, FormerDefault(False)] = True


class Spec(Model):
    apply: Apply = Apply()
    options: tuple[Options, ...] = ()
    name: str = "a"


@pytest.mark.parametrize(
    ("written", "compared", "read"),
    [
        ({}, {"apply": {"interval": "1s"}}, {"apply": {"interval": "1s"}}),
        ({"apply": {"interval": "5s"}}, {}, {"apply": {"interval": "5s"}}),
        ({"apply": {"interval": "9s", "batch": 10}, "name": "a"}, *[{"apply": {"interval": "9s"}}] * 2),
        (
            {"apply": {"interval": "5s", "batch": 7}, "options": [{"tables": "t", "kept": False}]},
            {"apply": {"batch": 7}, "options": [{"tables": "t"}]},
            {"apply": {"batch": 7, "interval": "5s"}, "options": [{"tables": "t", "kept": False}]},
        ),
        (
            {"apply": {"interval": "5s"}, "options": [{"tables": "t"}]},
            {"options": [{"tables": "t", "kept": True}]},
            {"apply": {"interval": "5s"}, "options": [{"tables": "t", "kept": True}]},
        ),
    ],
)
def test_a_default_that_changed_is_compared_as_it_was_and_read_as_it_is(
    written: dict[str, Any], compared: dict[str, Any], read: dict[str, Any]
) -> None:
    """`interval: 5s` stands in every object of the version before: its API server wrote it there."""
    spec = Spec.model_validate(written)
    assert for_comparing(spec) == compared
    assert for_reading(spec) == read
    assert Spec.model_validate(for_reading(spec)) == spec
    assert "apply" not in for_comparing(spec, {"apply"})


def test_a_request_is_told_without_fields_that_nobody_set() -> None:
    """All went to the driver, so one of the version before refused every request as soon as a field was added."""
    body = SnapshotBody(name="again", spec=SnapshotRequestSpec(replicator="shop", tables=("a.b",)))
    assert json.loads(body.to_json()) == {"name": "again", "spec": {"replicator": "shop", "tables": ["a.b"]}}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def defaults_of(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any, FieldInfo]]:
    """Of every field with a simple default in the model and below it."""
    for field in model.model_fields.values():
        here = f"{path}.{field.alias}"
        if not field.is_required() and isinstance(field.default, str | int | bool | float | None):
            yield here, field.default, field
        for inner in models_in(field.annotation):
            yield from defaults_of(inner, here)


def test_a_default_that_changes_is_marked_with_the_first_one() -> None:
    """Otherwise an upgrade restarts every driver, or a driver of another version works by another value.

    A new field: add it to the file with its default. A changed default: leave the file as it is, mark the field."""
    first = json.loads(FIRST.read_text())
    found = {}
    for root in (ReplicatorSpec, SnapshotRequestSpec):
        for path, default, field in defaults_of(root, root.__name__):
            marks = [mark.value for mark in field.metadata if isinstance(mark, FormerDefault)]
            assert default not in marks, f"{path}: its default is the former one again: take the mark away"
            found[path] = marks[0] if marks else default
    assert found == first


@pytest.mark.parametrize("count", [0, 1, 2])
def test_executors_of_a_former_manifest_are_compared_and_read_as_they_were(count: int) -> None:
    """Their drivers are not restarted, and older ones understand their manifest: it has no `min` and no `max`."""
    spec = Replicator.model_validate(replicator(executors={"count": count})).spec
    before = {} if count == 1 else {"executors": {"count": count}}
    for dumped in (for_comparing(spec), for_reading(spec)):
        assert {name: value for name, value in dumped.items() if name == "executors"} == before
    assert (spec.executors.min, spec.executors.most) == (0, count)


class Empty(Model):
    name: str | None = None


class Holder(Model):
    empty: Empty | None = None


def test_an_object_that_was_given_empty_is_not_nothing() -> None:
    """It has always been in the hash."""
    assert for_comparing(Holder(empty=Empty())) == {"empty": {}}
    assert for_comparing(Holder()) == {}
