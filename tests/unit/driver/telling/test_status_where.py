"""Where a snapshot failed is in the journal: the status says it after a restart, too."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

from support.scripted import ScriptedSource
from support.scripted_runs import Copy, filled
from tailrace.contract.status import Fault
from tailrace.errors import ReadRefused, TableStop, TargetChanged, ValueUnsupported, Where
from tailrace.sources import api


@dataclass(frozen=True)
class Refusing(ScriptedSource):
    error: TableStop | None = None

    @override
    def read(
        self, table: api.Table, part: api.KeyRange | api.KeyList, where: str | None, write: api.Writer
    ) -> api.ChunkRead:
        assert self.error is not None
        raise self.error


def fault_of_the_table(copy: Copy) -> Fault | None:
    (table,) = copy.driver.control.status().tables
    return table.fault


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (ReadRefused("main.one", "no right", "GRANT it."), "source"),
        (TargetChanged("main.one", "it was emptied", "Put it back."), "target"),
        (ValueUnsupported("main.one", "infinity", "Copy it as text."), "driver"),
    ],
)
def test_where_a_snapshot_failed_is_known_after_a_restart(tmp_path: Path, error: TableStop, where: Where) -> None:
    one = Copy(filled("one"), tmp_path)
    one.source = Refusing(one.database, error=error)
    with one.running():
        one.until(lambda _: one.driver.faults() == {"main.one": "SnapshotFailed"}, work=True)
    with one.running():
        one.turn()
        found = fault_of_the_table(one)
        assert found is not None and found.name == "SnapshotFailed"
        assert (found.message, found.where) == (f"{error.name}: {error.message}", where)
        assert found.fix.startswith(error.fix)
