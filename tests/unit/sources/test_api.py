"""The protocols of sources suffice: a source in memory is copied by all of Tailrace but Spark."""

from pathlib import Path
from random import Random

import pytest

from support.scripted_database import Change
from support.scripted_runs import Copy, copied, filled


@pytest.mark.parametrize("seed", range(2))
def test_a_source_is_copied_while_it_is_written_and_after_a_restart(tmp_path: Path, seed: int) -> None:
    copy = Copy(filled("orders", rows=0), tmp_path)
    try:
        copied(copy, Random(seed), "items", turns=45)
        assert copy.driver.faults() == {}
    finally:
        copy.stop()
    for number, name in enumerate(copy.database.names, 1):
        assert copy.rows(number) == copy.database.rows(number), name


def test_what_is_in_the_log_and_not_yet_visible_to_a_chunk_is_applied_over_it(tmp_path: Path) -> None:
    copy = Copy(filled("orders", rows=10), tmp_path)
    with copy.running():
        copy.until(lambda state: bool(state.tables))
        copy.database.commit(Change("U", 1, 3, "new"), Change("D", 1, 4), Change("I", 1, 11, "new"), hidden=True)
        copy.database.commit(Change("U", 1, 5, "new"))
        copy.until(lambda state: state.position == copy.database.end)
        copy.level()
    assert copy.rows(1) == copy.database.rows(1)
