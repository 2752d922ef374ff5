"""The versions that an Iceberg table keeps, from the JSON of its metadata: which ones an expiry takes, and at which of
the kept ones their files must be looked for. Pure; `iceberg_cleanup` reads the files themselves.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.targets.lake.iceberg.state import ADOPTED, STATE
from tailrace.targets.lake.kept import HISTORY_SECONDS

CUT = "cut_"
"""How the tags of cuts begin."""
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
    ours: bool
    """Tailrace committed it."""
    adopts: bool
    """It may have brought files that are older than itself; a snapshot that does not say may have, too."""


@dataclass(frozen=True)
class History:
    """All snapshots of the table, and the files that its metadata names directly."""

    snapshots: Mapping[int, Kept]
    current: int | None
    refs: Mapping[str, int]
    """Snapshots by the names of branches and tags."""
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
        refs = {name: ref["snapshot-id"] for name, ref in doc.get("refs", {}).items()}
        return cls(snapshots, current if current in snapshots else None, refs, named, doc["properties"])

    def line(self) -> list[Kept]:
        """The current snapshot and its ancestors as far as they are kept, the oldest first."""
        out: list[Kept] = []
        at = self.current
        while at is not None and at in self.snapshots:
            out.append(self.snapshots[at])
            at = out[-1].parent
        return out[::-1]

    def aged(self) -> list[Kept]:
        """The line from the oldest version on that is kept for its age, not (only) for a cut. None of these is
        missing."""
        line, of_cuts = self.line(), self._of_cuts()
        first = next((number for number, kept in enumerate(line) if kept.id not in of_cuts), len(line) - 1)
        return line[max(first, 0) :]

    def beside(self) -> list[Kept]:
        """Kept snapshots that the line does not have (any more)."""
        line = {kept.id for kept in self.line()}
        return [kept for id_, kept in self.snapshots.items() if id_ not in line]

    @property
    def plain(self) -> bool:
        """True for one line of versions, of which cuts keep some longer than the others."""
        of_cuts = self._of_cuts()
        others = any(name != "main" and not name.startswith(CUT) for name in self.refs)
        return not others and all(kept.ours or kept.id in of_cuts for kept in self.beside())

    def borders(self) -> list[Kept]:
        """The kept snapshots that together reach whatever kept and expired ones have in common: in a plain line of
        versions, what the oldest of the line no longer has was removed before, and a name never comes back; but those
        that cuts keep may be older. Where there are branches, others' tags or a table that was put back, all of
        them."""
        if not self.plain:
            return list(self.snapshots.values())
        line = self.line()
        return [*line[: len(line) - len(self.aged()) + 1], *self.beside()]

    def _of_cuts(self) -> set[int]:
        return {id_ for name, id_ in self.refs.items() if name.startswith(CUT)}

    def let_go(self, cutoff_ms: int) -> bool:
        """True if there is one that only a cut kept, which is over."""
        named = set(self.refs.values())
        return any(kept.at_ms < cutoff_ms and kept.id not in named for kept in self.beside())

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
        STATE in summary,
        summary.get(ADOPTED) != "0",
    )
