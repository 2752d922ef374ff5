"""The client's own configuration file, as `spec.lineage` names it, and the client made of it. Raises `InvalidManifest`
for whatever is wrong with it, before anything is touched."""

import copy
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tailrace.contract.settings import LineageSpec
from tailrace.driver.telling.lineage.naming import PRODUCER
from tailrace.errors import InvalidManifest
from tailrace.storage.secret_files import file_place

log = logging.getLogger(__name__)

SECRET_KEY = "openlineage.yml"
"""The key in the Secret that `spec.lineage.secretName` names, and the file's usual name."""
DISABLED = "OPENLINEAGE_DISABLED"
"""The client's own switch, an environment variable."""
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
_QUERY = re.compile(r"""\?[^\s'"<>()]+""")
_FIX = "Correct it; https://openlineage.io/docs/client/python describes it."


def read(spec: LineageSpec, secrets: Path | None) -> tuple[dict[str, Any], str]:
    """The document, and the name of its place in messages. `secrets`: folder in which Secrets are mounted."""
    path, what = _place(spec, secrets)
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidManifest(f"{what} cannot be read: {error.strerror}", "Write it, or correct the path.") from error
    except UnicodeDecodeError:
        raise InvalidManifest(f"{what} is not a text in UTF-8", _FIX) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise InvalidManifest(f"{what} is not YAML{where}", _FIX) from None  # the error's text repeats the line
    if not isinstance(found, dict):
        raise InvalidManifest(f"{what} is no mapping", _FIX)
    transport = found.get("transport")
    if not isinstance(transport, dict) or not isinstance(transport.get("type"), str):
        raise InvalidManifest(f"{what} has no transport.type", "Name one: http, file, kafka; its settings beside it.")
    return found, what


def transport_of(document: Mapping[str, Any]) -> str:
    return str(document["transport"]["type"])


def emitter(spec: LineageSpec, secrets: Path | None) -> Callable[[Any], object]:
    """A function that delivers an event, or raises."""
    document, what = read(spec, secrets)
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.client import OpenLineageConfig
        from openlineage.client.event_v2 import set_producer
    except ImportError as error:
        raise InvalidManifest(
            f"spec.lineage needs a package that is not installed: {error.name}",
            'Run `pip install ".[lineage]"` in a checkout of Tailrace.',
        ) from error
    logging.getLogger("openlineage").setLevel(logging.WARNING)  # in detail it logs its configuration, headers included
    known = [field.name for field in OpenLineageConfig.__attrs_attrs__]
    unknown = sorted(map(str, document.keys() - set(known)))
    if unknown:
        raise InvalidManifest(f"{what} has unknown fields: {', '.join(unknown)}", f"Known are {', '.join(known)}.")
    set_producer(PRODUCER)
    try:
        client = OpenLineageClient(config=_quiet(document))
    except Exception as error:  # the client and its transports raise whatever they like
        kind = transport_of(document)
        raise InvalidManifest(f"{what} cannot be used (transport {kind}): {text_of(error)}", _FIX) from error
    if os.environ.get(DISABLED, "").strip().lower() == "true":
        log.warning("%s is set: no lineage events are sent", DISABLED)
    return client.emit


def check(spec: LineageSpec, secrets: Path | None) -> str:
    """The kind of the transport; refused as at a start."""
    emitter(spec, secrets)
    return transport_of(read(spec, secrets)[0])


def text_of(error: BaseException) -> str:
    """The error in a line, without the credentials and the query that an address in it may hold. Events hold no values
    of rows, so neither do errors about them."""
    first = _QUERY.sub("?…", _CREDENTIALS.sub("//…@", (str(error).splitlines() or [""])[0]))[:300]
    text = f"{type(error).__name__}: {first}".rstrip(": ")
    return text if error.__cause__ is None else f"{text} <- {text_of(error.__cause__)}"


def _quiet(document: Mapping[str, Any]) -> dict[str, Any]:
    """With other defaults than the client's. The sender tries again by itself, and logs once; and the git repository in
    which a process happens to be started is not the job's source code."""
    made = copy.deepcopy(dict(document))
    if transport_of(made) == "http":
        made["transport"].setdefault("retry", {"total": 0, "connect": 0, "read": 0})
    facets = made.setdefault("facets", {})
    if isinstance(facets, dict):
        facets.setdefault("source_code_location", {"disabled": True})
    return made


def _place(spec: LineageSpec, secrets: Path | None) -> tuple[Path, str]:
    if spec.config_file is not None:
        return Path(spec.config_file), f"spec.lineage.configFile {spec.config_file}"
    if secrets is None:
        raise InvalidManifest(
            f"spec.lineage: Secret {spec.secret_name!r} cannot be read outside Kubernetes", "Use lineage.configFile."
        )
    path = secrets / str(spec.secret_name) / SECRET_KEY
    return path, f"spec.lineage: {file_place(str(path), 'file')}"
