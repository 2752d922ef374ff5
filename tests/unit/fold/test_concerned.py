"""Which rows of a chunk anything else may concern."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from support.folder_lake import FolderAccess
from support.random_log import TABLE, RandomLog, first_schema
from support.states import chunk
from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import cut
from tailrace.changelog.types import arrow_type
from tailrace.fold.concerned import disjoint, named_words
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import of_texts, words


def test_two_ranges_of_one_reading_share_no_key_but_lists_others_readings_and_unbounded_ones_may() -> None:
    low, high = chunk(7, 0, lower=("1",), upper=("5",)), chunk(7, 1, lower=("5",), upper=("9",))
    assert disjoint(low, high)
    assert not disjoint(low, chunk(7, 1, lower=("5",), upper=("9",), snapshot_id="other"))
    assert not disjoint(low, chunk(7, 1, lower=("5",), upper=("9",), keys=(("7",),)))
    assert not disjoint(low, chunk(7, 1, lower=("2",), upper=("5",)))
    assert not disjoint(chunk(), chunk(7, 1))


@pytest.mark.parametrize("most", [1000, 3])
def test_changes_holes_and_lists_of_keys_name_rows_unless_there_are_many(tmp_path: Path, most: int) -> None:
    log = RandomLog(Random(1), tmp_path, first_schema(composite=False), [(key,) for key in range(9)])
    log.grow_by_changes(20)
    asked = chunk(TABLE, keys=(("70",),), replay_point=5)
    part = cut(
        log.state,
        TABLE,
        AppliedState("log", schema_version=1, table_id=TABLE, holes=frozenset({("50",)})),
        log.record,
    )
    assert part is not None
    types = {column.name: arrow_type(column.type) for column in log.schema.columns}
    work = FoldInput(part, types, FolderAccess(str(tmp_path)))
    found = named_words(work, most)
    if most == 3:
        assert found is None
        return
    assert found is not None
    changed = {str(change.key[0]) for change, _ in log.history if change.key is not None}
    wanted = of_texts([(key,) for key in sorted({*changed, "50"})], work.key_types)
    assert set(found) == set(words(wanted))
    listed = named_words(FoldInput(replace(part, chunks=(asked,)), types, work.log))
    assert listed is not None and set(np.setdiff1d(listed, found)) == set(words(of_texts([("70",)], work.key_types)))
