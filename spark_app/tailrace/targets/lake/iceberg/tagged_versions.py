"""Former versions of an Iceberg table: found by a record of the log, kept by tags, checked, and brought back.

For `IcebergTable`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import RewindRefused
from tailrace.targets.api import Admit, VersionAt
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.iceberg import state as iceberg_state
from tailrace.targets.lake.iceberg.clock import clock_named
from tailrace.targets.lake.iceberg.files import paths_of
from tailrace.targets.lake.iceberg.history import CUT
from tailrace.targets.lake.iceberg.java import guarded
from tailrace.targets.lake.iceberg.read import Reader, Version
from tailrace.targets.lake.model import OTHER_CUT


@dataclass(frozen=True)
class TaggedVersions:
    """Those of one opened table."""

    reader: Reader
    access: FileAccess
    admit: Admit

    def before(self, known: Version, record: RecordNumber) -> VersionAt | None:
        """The newest version, from `known` on, that holds no more than the record; None: it is gone."""
        of_this, at = (known.stored.applied.generation, known.stored.applied.table_id), known.snapshot
        while at is not None:
            snapshot = self.reader.snapshot(at)
            if snapshot is None:
                return None
            if snapshot.state is not None:
                stored = iceberg_state.decode(snapshot.state, self.reader.name)
                if (stored.applied.generation, stored.applied.table_id) != of_this:
                    return None
                if stored.applied.applied_record <= record:
                    return VersionAt(at, self.reader.with_holes(stored).applied)
            at = snapshot.parent
        return None

    def changes(self, versions: Mapping[str, int]) -> tuple[dict[str, int], frozenset[str]]:
        """Cuts that want a tag, with their versions, and those whose tags go."""
        table, java = self.reader.table, self.reader.java
        with guarded(self.reader.name, "reading"):
            refs = str(java.jvm.java.lang.String.join("\n", table.refs().keySet())).split("\n")
            present = {name.removeprefix(CUT) for name in refs if name.startswith(CUT)}
            new = {name: id_ for name, id_ in versions.items() if name not in present and table.snapshot(id_)}
        return new, frozenset(present - versions.keys())

    def tag(self, new: Mapping[str, int], gone: Collection[str]) -> None:
        table, name = self.reader.table, self.reader.name
        self.admit()
        with clock_named(self.reader.java, table, name), guarded(name, "tagging", committing=True):
            change = table.manageSnapshots()
            for cut, id_ in new.items():
                change.createTag(CUT + cut, id_)
            for cut in gone:
                change.removeTag(CUT + cut)
            change.commit()

    def former(self, known: Version, version: int) -> AppliedState:
        """The state of a version that can be brought back; raises the reason why it cannot."""
        reader, name = self.reader, self.reader.name
        snapshot = reader.snapshot(version)
        if snapshot is None or snapshot.state is None:
            raise RewindRefused(f"{name}: snapshot {version} is gone", OTHER_CUT)
        # Not by the version in the log: a table whose rows are read again gets another one there.
        if snapshot.schema_id != known.schema_id:
            raise RewindRefused(f"{name}: its columns have changed since snapshot {version}", OTHER_CUT)
        with guarded(name, "listing the files of"):
            files = paths_of(reader.java, reader.table, name, known.columns, version)
        lost = next((path for path in sorted(files) if not self.access.exists(path)), None)
        if lost is not None:
            raise RewindRefused(f"{name}: snapshot {version} lacks {lost}", OTHER_CUT)
        return reader.with_holes(iceberg_state.decode(snapshot.state, name)).applied

    def restore(self, version: int) -> None:
        """Make it the present one."""
        table, name = self.reader.table, self.reader.name
        self.admit()
        with clock_named(self.reader.java, table, name), guarded(name, "rewinding", committing=True):
            table.manageSnapshots().setCurrentSnapshot(version).commit()
