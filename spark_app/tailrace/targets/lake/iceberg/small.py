"""A small commit as `TailraceWriter.java` takes it: one text and the footers of the new files (docs/decisions/0058)."""

import json
from collections.abc import Mapping
from typing import Any

from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.commit import NO_DAY, Plan
from tailrace.targets.lake.iceberg.files import Vector
from tailrace.targets.lake.iceberg.java import footer_bytes
from tailrace.targets.lake.iceberg.read import Version
from tailrace.targets.lake.iceberg.schema import partition_of

FILES = 1000
"""With more of them Iceberg's own transaction is used, which writes several manifests at the same time."""
READ = 5000
"""Live files in manifests that must be read; more are left to Iceberg, which never has all of them in memory."""
MERGED = 1000
"""Manifests are merged up to so many files: one is written whole when a file goes."""


def is_small(work: Plan) -> bool:
    return len(work.add) + len(work.remove) + len(work.vectors) <= FILES


def request(
    access: FileAccess,
    base: Version,
    uuid: str,
    work: Plan,
    *,
    vectors: Mapping[str, Vector],
    summary: Mapping[str, str],
) -> tuple[str, bytes]:
    """`summary`: the entries of the snapshot that are Tailrace's own, with the state."""
    footers = [footer_bytes(footer_of(access, new.path)) for new in work.add]
    files = [
        {"path": new.path, "size": new.size, "footer": len(footer), "day": NO_DAY if new.day is None else new.day}
        for new, footer in zip(work.add, footers, strict=True)
    ]
    change = {
        "uuid": uuid,
        "base": base.snapshot,
        "schema": base.schema_id,
        "days": partition_of(base.columns),
        "replace": work.rewrite,
        "add": files,
        "remove": [tracked.raw for tracked in work.remove],
        "vectors": [_vector(work.raw(path), vector) for path, vector in vectors.items()],
        "gone": [raw for raw, _ in work.replaced],
        "summary": summary,
        "read": READ,
        "merged": MERGED,
        "property": iceberg_state.STATE,
        "state": summary[iceberg_state.STATE],
    }
    return json.dumps(change), b"".join(footers)


def _vector(raw: str, vector: Vector) -> dict[str, Any]:
    blob = vector.blob
    return {
        "data": raw, "path": vector.path, "size": vector.size,
        "offset": blob.offset, "length": blob.length, "rows": blob.cardinality,
    }  # fmt: skip
