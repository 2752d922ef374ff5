"""The map of a table's chunks."""

import pytest

from support.states import chunk, keyed, snapshot, table_log
from tailrace.apply.progress import TableProgress
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.contract.status import TableStatus
from tailrace.driver.telling.table_view import table_view


@pytest.mark.parametrize(("where", "more"), [(None, 8), ("id > 5", None)])
def test_chunks_that_are_not_cut_yet_are_not_estimated_by_the_rows_that_a_filter_keeps(
    where: str | None, more: int | None
) -> None:
    """Of a filter that keeps 2 % of the rows, the console told of fifty times the chunks that were left."""
    log = table_log(keyed(7).model_copy(update={"where": where}))
    part = {"table_id": 7, "started": True, "estimated_rows": 100, "chunks_done": 2, "rows_done": 20}
    read = {"chunks": (chunk(7, 0), chunk(7, 1)), "chunk_records": (5, 6)}
    found = snapshot(SnapshotPlanned(snapshot_id="s", reason="initial", tables=(7,)), tables={7: part | read})
    view = table_view(TableStatus(name="s.t7", state="SNAPSHOTTING"), log, TableProgress(), [found], {})
    assert [(chunks.more, chunks.rows_done) for chunks in view.snapshots] == [(more, 20)]
