"""Tables of the lake that go back to a version which a cut keeps. Driven by `driver.asking.rewind`.

Delta: one commit that restores what the version had. Iceberg: the version becomes the current one again. Either way the
applied state is the version's, so that the next start replays the change log from there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import RewindRefused
from tailrace.targets.api import Opening
from tailrace.targets.lake.model import OTHER_CUT, RewindableTable
from tailrace.targets.lake.removal import LakeRemoval


@dataclass(frozen=True)
class LakeFormerVersion:
    """See `targets.api.FormerVersion`."""

    table: RewindableTable
    version: int
    present: AppliedState
    former: AppliedState

    def restore(self) -> None:
        self.table.restore(self.version)


@dataclass(frozen=True)
class LakeRewinding:
    """See `targets.api.Rewinding`."""

    make: Callable[[TableSchema], RewindableTable]
    removal: LakeRemoval

    def find(self, opening: Opening, log_id: str, version: int) -> LakeFormerVersion:
        schema, number = opening.schema, opening.generation.number
        # A table that is missing, or of another generation, would be made or replaced by opening it.
        owner = self.removal.owner((schema.schema_name, schema.table_name))
        if owner is None or (owner.log_id, owner.table_id, owner.generation) != (log_id, schema.table_id, number):
            raise RewindRefused(f"{schema.name}: its copy is gone, is another's, or has started over since", OTHER_CUT)
        table = self.make(schema)
        present = table.ensure(schema, log_id, opening.generation)
        former = table.former(version)
        if (former.log_id, former.table_id, former.generation) != (log_id, schema.table_id, number):
            raise RewindRefused(f"{schema.name}: version {version} is of another copy", OTHER_CUT)
        return LakeFormerVersion(table, version, present, former)
