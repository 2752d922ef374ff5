"""A changed manifest as the cluster would store it, without storing it.

`kubectl apply` leaves fields unchanged that were set in another way, and the API server has written defaults into every
object: what a file lacks is not what the object lacks. The API server is asked, in the way in which the object was
applied before, and stores nothing (`--dry-run=server`).
"""

import json

from tailrace.cli.kubectl.cluster import REPLICATORS, Cluster, Document, KubectlFailed

OPERATOR = "tailrace-operator"
"""Field manager of the operator, which applies nothing to Replicators that a file could."""


class Unasked(Exception):
    """The reason why the API server cannot be asked; the file is then compared as it is."""


def as_stored(cluster: Cluster, name: str, content: bytes) -> bytes:
    """The Replicator of this name, as JSON, which is YAML."""
    document = _document(content, name)
    there = cluster.get(REPLICATORS, name)
    space = there["metadata"]["namespace"]
    given = document["metadata"].get("namespace", space)
    if given != space:
        raise Unasked(f"the file's Replicator is of namespace {given}, not {space}")
    # Without what only stands in files that came out of a cluster, such as the version.
    plain = {"apiVersion": document["apiVersion"], "kind": "Replicator", "metadata": {"name": name, "namespace": space}}
    try:
        stored = cluster.would_apply({**plain, "spec": document.get("spec")}, *_way(there))
    except KubectlFailed as error:
        raise Unasked(error.message) from error
    return json.dumps({**plain, "spec": _without_defaults(stored["spec"])}).encode()


def _document(content: bytes, name: str) -> Document:
    import yaml  # takes a while to load, as the models do, and the other commands need neither

    try:
        documents = list(yaml.safe_load_all(content))
    except (yaml.YAMLError, ValueError) as error:
        raise Unasked("the file is not YAML") from error
    found = [d for d in documents if isinstance(d, dict) and d.get("kind") == "Replicator"]
    found = [d for d in found if isinstance(d.get("metadata"), dict) and d["metadata"].get("name") == name]
    if len(found) != 1 or "apiVersion" not in found[0]:
        raise Unasked(f"the file does not hold one Replicator {name}")
    return found[0]


def _way(there: Document) -> tuple[str, ...]:
    """The way in which it was applied: with server-side apply, and by whom; else as `kubectl apply` does."""
    entries = there["metadata"].get("managedFields", ())
    appliers = {str(e["manager"]) for e in entries if e.get("operation") == "Apply" and not e.get("subresource")} - {
        OPERATOR
    }
    if len(appliers) != 1:
        return ()
    return ("--server-side", "--force-conflicts", f"--field-manager={appliers.pop()}")


def _without_defaults(spec: Document) -> Document:
    """A driver of an older version knows no field that only the definitions of now have put in."""
    from pydantic import ValidationError

    from tailrace.contract.defaults import for_reading
    from tailrace.contract.resources import ReplicatorSpec

    try:
        return for_reading(ReplicatorSpec.model_validate(spec))
    except ValidationError:
        return spec
