"""Reads the manifests that `tailrace` is given: YAML documents of the two resources, as `kubectl apply` takes them.

Called by the command line and by the driver. Documents of other APIs (a Secret, a Namespace) may stand beside them, as
in any file for `kubectl apply`; they are passed over. Out come validated models, or `InvalidManifest` with the path of
the field, the value that was found and what to write instead. A value is repeated only where it cannot be a password
that was put into the wrong place: not of unknown fields, of credentials, or of a line that is not YAML.
"""

import difflib
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from typing_extensions import override

from tailrace.contract.base import FORMS, GROUP, api_versions, served
from tailrace.contract.resources import Replicator, SnapshotRequest
from tailrace.errors import InvalidManifest

_KINDS: dict[str, type[BaseModel]] = {"Replicator": Replicator, "SnapshotRequest": SnapshotRequest}
STANDARD_INPUT = "-"
"""The text that stands for standard input in place of a file's name."""
_SHOWN = 80
"""Longest value quoted in a message: a mistaken paste must not flood the terminal."""
_NO_MAPPING = "input should be a mapping of fields"
_SHAPES = ("model_type", "model_attributes_type", "dict_type")
"""Pydantic's names for the error of a text or a list in place of a mapping: a URL with a password, for example."""


@dataclass(frozen=True)
class Manifest:
    """The contents of one file, or of several together."""

    replicators: tuple[Replicator, ...]
    requests: tuple[SnapshotRequest, ...]

    def replicator(self, name: str | None = None) -> Replicator:
        """The Replicator called `name`, or the only one."""
        found = [r for r in self.replicators if name in (None, r.metadata.name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(r.metadata.name for r in self.replicators) or "none"
        if not found:
            raise InvalidManifest(
                f"the manifest holds no Replicator{f' {name}' if name else ''} (found: {names})",
                "Add the Replicator, or correct --name.",
            )
        raise InvalidManifest(f"the manifest holds several Replicators: {names}", "Choose one with --name.")

    @classmethod
    def of(cls, models: Sequence[BaseModel], origin: str) -> "Manifest":
        """Refuses two resources of one kind and name; `origin` says where they stand."""
        made = cls(
            tuple(m for m in models if isinstance(m, Replicator)),
            tuple(m for m in models if isinstance(m, SnapshotRequest)),
        )
        _unique(origin, "Replicator", [m.metadata.name for m in made.replicators])
        _unique(origin, "SnapshotRequest", [m.metadata.name for m in made.requests])
        return made

    def requests_of(self, replicator: str) -> tuple[SnapshotRequest, ...]:
        return tuple(r for r in self.requests if r.spec.replicator == replicator)


class _Loader(yaml.SafeLoader):
    """YAML lets a later duplicate key win silently; here it is a mistake."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # refused below
            if key.value in seen:
                line = key.start_mark.line + 1
                raise InvalidManifest(f"line {line}: the field {key.value!r} appears twice", "Keep one of the two.")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path: Path) -> Manifest:
    """Read the file, or standard input where it is called `-`; raises `InvalidManifest`."""
    if str(path) == STANDARD_INPUT:
        path, read = Path("standard input"), sys.stdin.buffer.read
    else:
        read = path.read_bytes
    try:
        text = read().decode()
    except OSError as error:
        raise InvalidManifest(f"cannot read {path}: {error.strerror}", "Give a readable YAML file with -f.") from error
    except UnicodeDecodeError as error:
        raise InvalidManifest(f"{path} is not a text in UTF-8", "Give a YAML file with -f.") from error
    return parse(text, str(path))


def parse(text: str, origin: str) -> Manifest:
    """The documents in `text`; `origin` names them in messages."""
    try:
        documents = [d for d in yaml.load_all(text, Loader=_Loader) if d is not None]
    except InvalidManifest as error:
        raise InvalidManifest(f"{origin}, {error.message}", error.fix) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: looks like a date and is none
        raise InvalidManifest(f"{origin} is not YAML: {_syntax(error)}", "Correct the syntax.") from error
    if not documents:
        raise InvalidManifest(f"{origin} holds no document", "Write a Replicator into it.")
    own = [(n, document) for n, document in enumerate(documents, 1) if not _of_another_api(document)]
    if not own:
        found = ", ".join(str(document["kind"]) for document in documents)
        raise InvalidManifest(f"{origin} holds no Replicator or SnapshotRequest (found: {found})", "Add one.")
    return Manifest.of([_model(document, f"{origin}, document {n}") for n, document in own], origin)


def _of_another_api(document: object) -> bool:
    if not isinstance(document, dict) or document.get("kind") in _KINDS:
        return False
    api = document.get("apiVersion")
    return isinstance(api, str) and isinstance(document.get("kind"), str) and api.partition("/")[0] != GROUP


def _model(document: object, origin: str) -> BaseModel:
    if not isinstance(document, dict):
        raise InvalidManifest(f"{origin}: {_NO_MAPPING}", "Write apiVersion, kind, metadata, spec.")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidManifest(f"{origin}: kind is {_shown(kind)}", f"Use one of: {', '.join(_KINDS)}.")
    if not served(document.get("apiVersion")):
        raise InvalidManifest(f"{origin}: apiVersion is {_shown(document.get('apiVersion'))}", f"Use {api_versions()}.")
    document.pop("status", None)  # of one that came out of a cluster: `kubectl apply` passes over it, too
    try:
        return _KINDS[kind].model_validate(document)
    except ValidationError as error:
        raise invalid(error, f"{origin} ({kind})", _KINDS[kind]) from error


def _path(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location))


def invalid(
    error: ValidationError,
    origin: str,
    model: type[BaseModel] | None = None,
    fix: str = "Correct the fields; docs/reference.md lists them.",
    named: Callable[[Sequence[int | str]], str] = _path,
) -> InvalidManifest:
    """One message for all faults of a document: path, value, reason. `model`, if given, knows the fields that were
    meant; `named` how a field is written where the document comes from."""
    items = error.errors(include_url=False)
    faults = [_fault(item, model, named) for item in items if not _follows(item, items)]
    return InvalidManifest(f"{origin}: {'; '.join(faults)}", fix)


def _follows(item: Any, items: Sequence[Any]) -> bool:
    """Too few items, because those that are wrong were not counted."""
    own = item["loc"]
    return item["type"] == "too_short" and any(len(i["loc"]) > len(own) and i["loc"][: len(own)] == own for i in items)


def _fault(item: Any, model: type[BaseModel] | None, named: Callable[[Sequence[int | str]], str]) -> str:
    path = named(item["loc"]) if item["loc"] else "document"
    value = item.get("input")
    found = path if {"env", "credentials"} & set(item["loc"]) else f"{path} is {_shown(value)}"
    match item["type"]:
        case "missing":
            return f"{path} is missing"
        case "json_invalid":
            return f"not JSON: {item['ctx']['error']}"
        case "extra_forbidden":
            return f"{path} is not a known field{_guess(item['loc'], model)}"
        case "value_error":
            reason = str(item["msg"]).removeprefix("Value error, ")
            return f"{path}: {reason}" if item["loc"] else reason
        case kind if kind in _SHAPES:
            return f"{path}: {_NO_MAPPING}"
        case "tuple_type":
            return f"{found}: input should be a list"
        case "string_pattern_mismatch" if item["ctx"]["pattern"] in FORMS:
            return f"{found}: {FORMS[item['ctx']['pattern']]}"
        case _:
            message = _one_line(str(item["msg"]))
            return f"{found}: {message[:1].lower()}{message[1:]}"


def _guess(location: Sequence[int | str], model: type[BaseModel] | None) -> str:
    """The field that was meant, if one beside it has nearly the same name."""
    for part in location[:-1]:
        if isinstance(part, str) and model is not None:
            model = next((_model_in(f.annotation) for f in model.model_fields.values() if f.alias == part), None)
    known = {} if model is None else {str(f.alias).lower(): str(f.alias) for f in model.model_fields.values()}
    near = difflib.get_close_matches(str(location[-1]).lower(), known, n=1, cutoff=0.7)
    return f"; did you mean {known[near[0]]}?" if near else ""


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field holds: alone, in a list, or beside None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _syntax(error: Exception) -> str:
    """The place of an error and its cause, without the line itself and without names from it."""
    said = str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        said = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return _one_line(re.sub(r"'([^']*)'", lambda m: m[0] if len(m[1]) < 2 or m[1][0] in "<\\" else "'…'", said))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")


def _unique(origin: str, kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidManifest(f"{origin}: two {kind}s are called {name!r}", "Give each its own metadata.name.")
        seen.add(name)
