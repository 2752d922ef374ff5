"""The applied state of a table in a folder catalog, read from its metadata without Java: a table to which nothing is
written needs no more. Whatever is not plain is left to Iceberg.

See the file layout of Iceberg's `HadoopTableOperations`: `metadata/version-hint.text` names a version, the newest is
that one or one of those that follow it.
"""

import json
from typing import Any

from tailrace.batch.applied import AppliedState
from tailrace.errors import TailraceError
from tailrace.storage.store import NotFound
from tailrace.targets.lake.columns import COLUMNS
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.state import Broken, IcebergSnapshot, StoredSummary


def applied_state(access: FileAccess, location: str, name: str) -> AppliedState | None:
    """The state of the present version. None: there is no table, it is not Tailrace's, or only Iceberg can tell (the
    line of versions has expired, another program wrote rows, many rows are withheld, a file cannot be read)."""
    try:
        stored = _stored(_newest(access, f"{location}/metadata"), name)
    except (NotFound, ValueError, KeyError, TypeError, TailraceError):  # Iceberg meets it again, and it is told there
        return None
    return None if stored is None or stored.holes_file is not None else stored.applied


def _newest(access: FileAccess, folder: str) -> dict[str, Any]:
    number = int(access.get(f"{folder}/version-hint.text"))
    while access.exists(f"{folder}/v{number + 1}.metadata.json"):
        number += 1
    document: dict[str, Any] = json.loads(access.get(f"{folder}/v{number}.metadata.json"))
    return document


def _stored(document: dict[str, Any], name: str) -> StoredSummary | None:
    properties = document["properties"]
    if COLUMNS not in properties:
        return None
    mirror = iceberg_state.decode_mirror(properties[iceberg_state.STATE], name)
    current = document.get("current-snapshot-id")
    if current in (None, -1):
        return mirror.stored if mirror.snapshot is None else None
    snapshots = {doc["snapshot-id"]: doc for doc in document["snapshots"]}

    def read(id_: int) -> IcebergSnapshot | None:
        return iceberg_state.snapshot_of(snapshots[id_]) if id_ in snapshots else None

    found = iceberg_state.walk(name, current, read)
    return None if isinstance(found, Broken) else iceberg_state.decode(found.state or "", name)
