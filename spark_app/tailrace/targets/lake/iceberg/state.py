"""The applied state in an Iceberg table, and how it is found again. Pure: no Java, no storage.

Every commit of Tailrace writes the state twice, atomically: into the snapshot's summary (so that each version has its
own), and into a table property (the mirror, because expiry removes old snapshots). The summary is found by walking from
the current snapshot to its ancestors over foreign compactions. The mirror counts only where the walk ends at an expired
ancestor, and only with proof that the mirrored snapshot is an ancestor: a table put back to an older version must never
appear to be at the newer state.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.batch.applied import AppliedState
from tailrace.errors import REPAIR, RESYNC, ForeignChange, TargetChanged, TargetRefused
from tailrace.targets import stored_state

STATE = "tailrace.state"
"""Summary entry of a snapshot, and table property (the mirror)."""
NONCE = "tailrace.commit"
"""Summary entry: distinguishes this very commit from every other when its outcome was unknown."""
ADOPTED = "tailrace.adopted"
"""Summary entry: how many chunk files the commit adopted, the only files that are much older than their commit."""
INLINE_HOLES = 4096
"""Characters of holes kept in the state; more go into a file: each retained snapshot repeats its state."""


@dataclass(frozen=True)
class StoredSummary:
    """A stored state; `holes_file` and its digest instead of many holes."""

    applied: AppliedState
    holes_file: str | None = None
    holes_digest: str | None = None


@dataclass(frozen=True)
class Mirror:
    """The table property: the state, and which snapshot it belongs to (None: the table was just made)."""

    stored: StoredSummary
    snapshot: int | None
    sequence: int


@dataclass(frozen=True)
class IcebergSnapshot:
    """The fields of a snapshot that the walk needs."""

    id: int
    parent: int | None
    sequence: int
    operation: str
    state: str | None
    nonce: str | None
    schema_id: int | None = None
    """Iceberg's number of the columns that the table had."""


@dataclass(frozen=True)
class Broken:
    """The walk met only compactions, then an ancestor that has expired."""

    oldest: IcebergSnapshot


def holes_json(state: AppliedState) -> str:
    return json.dumps(sorted(state.holes), ensure_ascii=False, separators=(",", ":"))


def parse_holes(text: str, digest: str | None, where: str) -> frozenset[tuple[str, ...]]:
    if digest is not None and hashlib.sha256(text.encode()).hexdigest() != digest:
        raise TargetRefused(f"{where} is not what the table's state says (digest)", f"Restore the file, or {RESYNC}.")
    return frozenset(tuple(key) for key in json.loads(text))


def encode(stored: StoredSummary) -> dict[str, Any]:
    applied = stored.applied
    out = stored_state.document(applied)
    if stored.holes_file is not None:
        return out | {"holesFile": stored.holes_file, "holesDigest": stored.holes_digest}
    return out | ({"holes": sorted(applied.holes)} if applied.holes else {})


def decode(text: str, table: str) -> StoredSummary:
    try:
        doc = json.loads(text)
        applied = stored_state.applied_state(doc, doc.get("holes", ()), table)
        return StoredSummary(applied, doc.get("holesFile"), doc.get("holesDigest"))
    except (ValueError, KeyError, TypeError) as error:
        raise TargetRefused(
            f"{table} has an unreadable {STATE}: {text[:100]!r}",
            f"Put it back; or, if the table is this Replicator's, drop it and {RESYNC}.",
        ) from error


def encode_text(stored: StoredSummary) -> str:
    return json.dumps(encode(stored), ensure_ascii=False, separators=(",", ":"))


def encode_mirror(mirror: Mirror) -> str:
    doc = encode(mirror.stored) | {"snapshot": mirror.snapshot, "sequence": mirror.sequence}
    return json.dumps(doc, ensure_ascii=False, separators=(",", ":"))


def decode_mirror(text: str, table: str) -> Mirror:
    stored, doc = decode(text, table), json.loads(text)
    return Mirror(stored, doc.get("snapshot"), int(doc.get("sequence", 0)))


def snapshot_of(doc: Mapping[str, Any]) -> IcebergSnapshot:
    """A snapshot from Iceberg's own JSON of it."""
    summary: Mapping[str, str] = doc.get("summary", {})
    return IcebergSnapshot(
        doc["snapshot-id"],
        doc.get("parent-snapshot-id"),
        doc.get("sequence-number", 0),
        summary.get("operation", ""),
        summary.get(STATE),
        summary.get(NONCE),
        doc.get("schema-id"),
    )


def walk(
    table: str, current: int, read: Callable[[int], IcebergSnapshot | None], accepts: bool = False
) -> IcebergSnapshot | Broken:
    """The newest ancestor that Tailrace wrote. Foreign compactions are passed over, a foreign change of rows is
    refused, unless it is accepted."""
    snapshot = read(current)
    while snapshot is not None:
        if snapshot.state is not None:
            return snapshot
        if snapshot.operation != "replace" and not accepts:
            raise ForeignChange(
                table,
                f"snapshot {snapshot.id} ({snapshot.operation}) is not Tailrace's",
                f"Only compaction may be done by others. Keep other writers out, then {REPAIR}; or roll the table back"
                " before that snapshot.",
            )
        if snapshot.parent is None:
            break
        parent = read(snapshot.parent)
        if parent is None:
            return Broken(snapshot)
        snapshot = parent
    raise TargetChanged(
        table,
        "no version in the table's history carries the applied sequence",
        f"If the table is this Replicator's, drop it and {RESYNC}.",
    )


def proven_by_mirror(
    table: str, broken: Broken, mirror: Mirror | None, sequences: Callable[[], Collection[int]]
) -> StoredSummary:
    """The mirrored state, if the mirrored snapshot is surely an ancestor and no foreign rows came after it.

    `sequences`: the data sequence numbers of all live data files and vectors. A number belongs to one snapshot only,
    and a compaction gives its files the number of the version it read. So a file with the mirror's number proves the
    descent, and no higher number among them proves that no other program wrote rows.
    """
    if mirror is not None and mirror.snapshot is not None:
        if broken.oldest.parent == mirror.snapshot:
            return mirror.stored
        live = sequences()
        if mirror.sequence in live and max(live) <= mirror.sequence:
            return mirror.stored
    raise TargetChanged(
        table,
        f"the history before snapshot {broken.oldest.id} has expired and nothing proves that it holds "
        "Tailrace's last commit",
        f"Nothing else brings it forward: {RESYNC}.",
    )
