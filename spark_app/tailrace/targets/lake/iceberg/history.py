"""The versions that an Iceberg table keeps, from the JSON of its metadata: which ones an expiry takes, and at which of
the kept ones their files must be looked for. Pure; `iceberg_cleanup` reads the files themselves.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.targets.lake.iceberg.state import ADOPTED, STATE
from tailrace.targets.lake.kept import HISTORY_SECONDS

MAX_AGE = "history.expire.max-snapshot-age-ms"
"""Iceberg's table property: who sets it longer than our hour gets it."""


@dataclass(frozen=True)
class Kept:
    """One snapshot of the table."""

    id: int
    parent: int | None
    at_ms: int
    manifest_list: str
    holes_file: str | None
    """The side file that its state names."""
    adopts: bool
    """It may have brought files that are older than itself; a snapshot that does not say may have, too."""


@dataclass(frozen=True)
class History:
    """All snapshots of the table, and the files that its metadata names directly."""

    snapshots: Mapping[int, Kept]
    current: int | None
    refs: Collection[str]
    named: Collection[str]
    """Former metadata files, statistics."""
    properties: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "History":
        doc = json.loads(text)
        snapshots = {snapshot["snapshot-id"]: _kept(snapshot) for snapshot in doc.get("snapshots", ())}
        named = [entry["metadata-file"] for entry in doc.get("metadata-log", ())]
        named += [entry["statistics-path"] for entry in doc.get("statistics", ())]
        named += [entry["statistics-path"] for entry in doc.get("partition-statistics", ())]
        current = doc.get("current-snapshot-id")
        return cls(
            snapshots, current if current in snapshots else None, tuple(doc.get("refs", ())), named, doc["properties"]
        )

    def line(self) -> list[Kept]:
        """The current snapshot and its ancestors as far as they are kept, the oldest first."""
        out: list[Kept] = []
        at = self.current
        while at is not None and at in self.snapshots:
            out.append(self.snapshots[at])
            at = out[-1].parent
        return out[::-1]

    def borders(self) -> list[Kept]:
        """The kept snapshots that together reach whatever kept and expired ones have in common: in a plain line of
        versions, what the oldest kept one no longer has was removed before, and a name never comes back. Where there
        are branches, tags or a table that was put back, all of them."""
        line = self.line()
        plain = len(line) == len(self.snapshots) and set(self.refs) <= {"main"}
        return line[:1] if plain else list(self.snapshots.values())

    def cutoff_ms(self, older_than: float) -> int:
        """When the version was made that was current at that time: all before it may go. A table's own property makes
        the time longer."""
        own = int(self.properties.get(MAX_AGE, 0)) / 1000 - HISTORY_SECONDS
        limit = (older_than - max(own, 0.0)) * 1000
        return max((kept.at_ms for kept in self.line() if kept.at_ms <= limit), default=0)


def _kept(doc: Mapping[str, Any]) -> Kept:
    summary: Mapping[str, str] = doc.get("summary", {})
    state = json.loads(summary.get(STATE, "{}"))
    return Kept(
        doc["snapshot-id"],
        doc.get("parent-snapshot-id"),
        doc["timestamp-ms"],
        doc["manifest-list"],
        state.get("holesFile"),
        summary.get(ADOPTED) != "0",
    )
