"""Read one version of an Iceberg table: applied state, live files with dead rows, columns. For `IcebergTable`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.changelog.records.terms import Column
from tailrace.errors import REPAIR, RESYNC, ForeignChange, TargetChanged, TargetRefused
from tailrace.storage.store import NotFound
from tailrace.targets.lake.columns import COLUMNS, Columns
from tailrace.targets.lake.files.access import FileAccess, footer_of
from tailrace.targets.lake.files.layout import FIELD_ID
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.files import LiveFile, live_files
from tailrace.targets.lake.iceberg.java import Java, guarded
from tailrace.targets.lake.iceberg.schema import PresentField, field_ids, present_fields, unlike
from tailrace.targets.lake.iceberg.state import Broken, IcebergSnapshot, StoredSummary
from tailrace.targets.lake.model import OTHERS


@dataclass(frozen=True)
class Version:
    """A table version as read, or as our own commit left it."""

    snapshot: int | None
    """None: the table has no snapshot yet."""
    stored: StoredSummary
    columns: Columns
    last_id: int
    """The highest field id ever used."""
    schema_id: int
    """Iceberg's number of the columns as they are."""
    fields: frozenset[int] = frozenset()
    """Ids of the fields that the table has."""
    files: Mapping[str, LiveFile] = field(default_factory=dict)


@dataclass(frozen=True)
class DescribedVersion:
    """A version by the table's metadata, without its files."""

    uuid: str
    location: str
    snapshot: int | None
    """None: the table has no snapshot yet."""
    last_id: int
    schema_id: int
    fields: Sequence[PresentField]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Reader:
    """Reads versions of one opened table."""

    java: Java
    table: Any
    name: str
    keys: tuple[Column, ...]
    access: FileAccess

    def describe(self) -> DescribedVersion:
        """The version that the table object holds, by one call."""
        with guarded(self.name, "reading"):
            doc = json.loads(self.java.iceberg.TailraceTables.describe(self.table))
        return DescribedVersion(
            doc["uuid"],
            doc["location"],
            doc.get("snapshot"),
            doc["last-column"],
            doc["schema-id"],
            present_fields(doc["schema"]),
            doc["properties"],
        )

    def version(self, described: DescribedVersion, accepts: bool = False) -> Version:
        """State, then files, of the version that the table object holds. `accepts`: see `FormatTable.ensure`."""
        properties, present = described.properties, described.fields
        last_id, schema_id, snapshot_id = described.last_id, described.schema_id, described.snapshot
        if iceberg_state.STATE in properties and COLUMNS not in properties:
            what = f"the target table has lost its property {COLUMNS}: another program has removed it"
            raise TargetChanged(self.name, what, f"Nothing else tells its columns apart: {RESYNC}.")
        if iceberg_state.STATE not in properties:
            raise TargetRefused(
                f"the table {self.name} exists and Tailrace did not make it",
                OTHERS,
            )
        mirror = iceberg_state.decode_mirror(properties[iceberg_state.STATE], self.name)
        columns = Columns.from_json(properties[COLUMNS])
        if snapshot_id is None:
            if mirror.snapshot is not None:
                raise TargetChanged(self.name, "the target table was replaced or emptied", f"Put it back, or {RESYNC}.")
            return Version(None, self.with_holes(mirror.stored), columns, last_id, schema_id, field_ids(present))
        found = iceberg_state.walk(self.name, snapshot_id, self.snapshot, accepts)
        with guarded(self.name, "listing the files of"):
            files, sequences = live_files(
                self.java, self.table, self.name, keys=self.keys, columns=columns, access=self.access
            )
        self._check_names(columns, present, files)
        if isinstance(found, Broken):
            stored = iceberg_state.proven_by_mirror(self.name, found, mirror, lambda: sequences)
        else:
            stored = iceberg_state.decode(found.state or "", self.name)
        return Version(snapshot_id, self.with_holes(stored), columns, last_id, schema_id, field_ids(present), files)

    def _check_names(self, columns: Columns, present: Sequence[PresentField], files: Mapping[str, LiveFile]) -> None:
        """Others' compaction writes columns under their present names, and we read files by the first ones. Where the
        two differ (a renamed column), prove each file."""
        renamed = unlike(columns, present)
        for path in files if renamed else ():
            schema = footer_of(self.access, path).schema.to_arrow_schema()
            for column in schema:
                id_ = int((column.metadata or {}).get(FIELD_ID, b"0"))
                if renamed.get(id_, column.name) != column.name:
                    raise ForeignChange(
                        self.name,
                        f"{path} was rewritten by others after column {renamed[id_]} was renamed to {column.name}",
                        f"Let only Tailrace compact this table, then {RESYNC}.",
                    )

    def look(self) -> tuple[str, int | None]:
        """The table's uuid and its current snapshot; refreshes the table object."""
        with guarded(self.name, "reading"):
            uuid, _, snapshot = str(self.java.iceberg.TailraceWriter.look(self.table)).partition(" ")
            return uuid, int(snapshot) if snapshot else None

    def current(self) -> int | None:
        """The current snapshot's id; refreshes the table object."""
        return self.look()[1]

    def uuid(self) -> str:
        with guarded(self.name, "reading"):
            return str(self.table.uuid().toString())

    def snapshot(self, snapshot_id: int) -> IcebergSnapshot | None:
        with guarded(self.name, "reading"):
            found = self.table.snapshot(snapshot_id)
            return None if found is None else self.parse(found)

    def parse(self, snapshot: Any) -> IcebergSnapshot:
        return iceberg_state.snapshot_of(json.loads(self.java.iceberg.SnapshotParser.toJson(snapshot)))

    def find_commit(self, nonce: str, base: int | None) -> bool:
        """Is the commit with this nonce between the current version and `base`?"""
        at = self.current()
        while at is not None and at != base:
            snapshot = self.snapshot(at)
            if snapshot is not None and snapshot.nonce == nonce:
                return True
            at = None if snapshot is None else snapshot.parent
        return False

    def check_between(self, parent: int | None, base: int | None) -> None:
        """Others committed between our reading and our commit, and Iceberg's validations let us through: only
        compaction may."""
        while parent is not None and parent != base:
            between = self.snapshot(parent)
            if between is None or between.operation != "replace":
                raise ForeignChange(
                    self.name,
                    f"snapshot {parent} was committed by another writer just before Tailrace's commit",
                    f"Other writers may only compact the table. Keep them out, then {REPAIR}.",
                )
            parent = between.parent

    def with_holes(self, stored: StoredSummary) -> StoredSummary:
        if stored.holes_file is None:
            return stored
        try:
            text = self.access.get(stored.holes_file).decode()
        except NotFound as error:
            raise TargetChanged(
                self.name,
                f"{stored.holes_file} is missing, which lists rows that are still unknown",
                f"Restore it, or {RESYNC}.",
            ) from error
        holes = iceberg_state.parse_holes(text, stored.holes_digest, stored.holes_file)
        return replace(stored, applied=replace(stored.applied, holes=holes))
