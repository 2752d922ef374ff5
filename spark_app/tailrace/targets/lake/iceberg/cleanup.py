"""Forget old versions of an Iceberg table and delete what only they reached. For `IcebergTable`.

Iceberg's own clean-up after an expiry deletes every file that an expired snapshot replaced, by path. But one Puffin
file holds the vectors of several data files, and all but one of them may still be in force. So Iceberg only forgets
the snapshots here, and the files to delete are the difference of what was reached before and what is reached now.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from tailrace.seams import seam
from tailrace.targets.api import Admit
from tailrace.targets.lake.files import cleanup
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.files import absolute
from tailrace.targets.lake.iceberg.history import History, Kept
from tailrace.targets.lake.iceberg.java import guarded
from tailrace.targets.lake.iceberg.read import Reader
from tailrace.targets.lake.kept import CHUNK, KeptChunks, name_of, names_of

AT_ONCE = 20
"""So many versions must be too old: forgetting them is a commit of its own."""
SHARE = 10
"""Per cent of all versions that must be too old, if that is more: an expiry reads what the metadata says of all."""
RESTED_SECONDS = 12 * 3600.0
"""Or one that has been too old for so long: a table that is rarely written to must not keep a whole former copy."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(
    rf"/data/(?:{_UUID}\.parquet|{CHUNK}[^/]*\.parquet|[0-9a-f]{{32}}\.puffin)$"
    r"|/metadata/(?:snap-[^/]*\.avro|[0-9a-f-]{36}-m\d+\.avro|[^/]*\.metadata\.json)$"
    r"|/_tailrace/(?:holes-|next/)[^/]*\.json$"
)
"""Names of files that a writer of Tailrace may have left. Names of other writers stay: a rewrite of theirs may take
hours to commit."""


@dataclass(frozen=True)
class IcebergCleaner:
    """Works on one opened table; `location` is its folder. Nothing outside it is deleted."""

    reader: Reader
    access: FileAccess
    location: str
    admit: Admit
    """Asked before anything is forgotten or deleted."""

    def expire(self, older_than: float, chunks: KeptChunks, at_once: int, let_go: bool = False) -> bool:
        """Forget the versions that were replaced before that time; whether any were. `let_go`: cuts may have kept
        some, and no longer do."""
        table = self.reader.table
        with guarded(self.reader.name, "reading"):
            at_once = max(at_once, int(table.history().size()) * SHARE // 100)
            if not self._may_be_due(older_than, at_once) and not (let_go and self._has_others()):
                return False
            table.refresh()
            base = table.operations().current()
            before = self._history(base)
        aged, cutoff = before.aged(), before.cutoff_ms(older_than)
        rested = bool(aged) and before.cutoff_ms(older_than - RESTED_SECONDS) > aged[0].at_ms
        if sum(kept.at_ms < cutoff for kept in aged) < at_once and not rested and not before.let_go(cutoff):
            return False
        self.admit()
        name = self.reader.name
        with clock_named(self.reader.java, table, name), guarded(name, "expiring snapshots of"):
            table.expireSnapshots().expireOlderThan(cutoff).cleanExpiredFiles(False).commit()
            seam("iceberg.expired")
            # Dying from here on leaves files that no version reaches, which a sweep finds.
            table.refresh()
            after = self._history(table.operations().current())
            unneeded = self._only_before(base, before, after)
        cleanup.remove(self.access, (path for path in unneeded if not chunks.keeps(path)), self.location)
        return True

    def _may_be_due(self, older_than: float, at_once: int) -> bool:
        """True if an expiry may be due, by the times alone, which cost little; the table's own property may keep
        versions for longer."""
        log = self.reader.table.history()

        def replaced(number: int) -> float:
            return int(log.get(number).timestampMillis()) / 1000 if number < log.size() else inf

        return replaced(at_once) <= older_than or replaced(1) <= older_than - RESTED_SECONDS

    def _has_others(self) -> bool:
        """True if there are versions beside the line of the present one."""
        table = self.reader.table
        return int(table.operations().current().snapshots().size()) > int(table.history().size())

    def sweep(self, older_than: float, chunks: KeptChunks, live: Iterable[str], skew: float) -> int:
        """Delete what killed writers and interrupted expiries left; `live`: the files of the current version."""
        with guarded(self.reader.name, "reading"):
            self.reader.table.refresh()
            metadata = self.reader.table.operations().current()
            history = self._history(metadata)
            borders = history.borders()
            needed = names_of(live) | names_of(history.named) | {name_of(str(metadata.metadataFileLocation()))}
            needed |= names_of(kept.manifest_list for kept in history.snapshots.values())
            needed |= names_of(kept.holes_file for kept in history.snapshots.values() if kept.holes_file)
            needed |= names_of(self._reached(metadata, self._manifests(metadata, borders)))
            # What is older than the oldest version that is kept for its age is reached from there or from a cut, if at
            # all; but for files that waited.
            for kept in history.snapshots.values():
                if kept.adopts and kept not in borders:
                    needed |= names_of(self._reached(metadata, self._manifests(metadata, [kept])))
        oldest_kept = history.aged()[:1] if history.plain else history.snapshots.values()
        oldest = min((kept.at_ms / 1000 for kept in oldest_kept), default=older_than)
        found = (entry for part in ("data", "metadata", "_tailrace") for entry in self._found(part))
        gone = cleanup.abandoned(found, needed, before=min(older_than, oldest) - skew, chunks=chunks)
        gone += cleanup.left_by_killed(self.access, self.location, older_than - skew)
        self.admit()
        return len(gone) if cleanup.remove(self.access, gone, self.location) else 0

    def _found(self, part: str) -> Iterable[tuple[str, float]]:
        return (entry for entry in self.access.aged(f"{self.location}/{part}") if _OURS.search(entry[0]))

    def _history(self, metadata: Any) -> History:
        return History.parse(str(self.reader.java.iceberg.TableMetadataParser.toJson(metadata)))

    def _only_before(self, base: Any, before: History, after: History) -> list[str]:
        expired = [kept for id_, kept in before.snapshots.items() if id_ not in after.snapshots]
        borders = after.borders() if before.plain else list(after.snapshots.values())
        candidates, kept = self._manifests(base, expired), self._manifests(base, borders)
        candidates.removeAll(kept)
        gone = set(self._reached(base, candidates))
        if gone:
            gone -= set(self._reached(base, kept))
        held = {kept.holes_file for kept in after.snapshots.values()}
        lists = [kept.manifest_list for kept in expired]
        holes = [kept.holes_file for kept in expired if kept.holes_file and kept.holes_file not in held]
        statistics = set(before.named) - set(after.named)
        return [absolute(path) for path in (*gone, *lists, *holes, *statistics)]

    def _manifests(self, metadata: Any, snapshots: Collection[Kept]) -> Any:
        """A Java set: a manifest is the same wherever it is listed."""
        out = self.reader.java.jvm.java.util.HashSet()
        for kept in snapshots:
            out.addAll(metadata.snapshot(kept.id).allManifests(self.reader.table.io()))
        return out

    def _reached(self, metadata: Any, manifests: Any) -> Iterable[str]:
        """The manifests and all files that are live in them."""
        java, io, specs = self.reader.java, self.reader.table.io(), metadata.specsById()
        iterator = manifests.iterator()
        while iterator.hasNext():
            manifest = iterator.next()
            yield str(manifest.path())
            text = str(java.jvm.java.lang.String.join("\n", java.iceberg.ManifestFiles.readPaths(manifest, io, specs)))
            yield from text.split("\n") if text else ()
