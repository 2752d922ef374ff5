"""Dropped tables whose copy is to go: what the fold makes of drops, tables that follow, and what the driver records."""

from random import Random

import pytest

from support.journals import Journal, table_schema
from tailrace.changelog.dropped import KEPT_IDS, due, is_blocked
from tailrace.changelog.records import Event, SourceRenewed
from tailrace.changelog.records.tables import Applied, CopyRemoval, TableAdded, TableForgotten, TableRemoved
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LogState, fold

PLACE = ("public", "t")


def named(table_id: int, table: str = "t", version: int = 1) -> TableSchema:
    return table_schema(table_id, version).model_copy(update={"table_name": table})


def added(table_id: int, table: str = "t", version: int = 1) -> TableAdded:
    return TableAdded(table=named(table_id, table, version), edge="5")


def dropped(table_id: int, *, drop: bool = True) -> TableRemoved:
    return TableRemoved(table_id=table_id, reason="it was dropped", drop=drop)


def step(word: str) -> CopyRemoval:
    return CopyRemoval.model_validate({"schema_name": PLACE[0], "table_name": PLACE[1], "step": word})


class Log:
    def __init__(self) -> None:
        self._journal = Journal(Random(1))
        self.state = fold(LogState(), self._journal.origin())

    def has(self, *events: Event) -> LogState:
        """A record with them; the state goes through its stored form."""
        state = fold(self.state, self._journal.plain(events=events))
        self.state = LogState.model_validate_json(state.model_dump_json())
        assert self.state == state
        return self.state


@pytest.fixture
def log() -> Log:
    made = Log()
    made.has(added(1))
    return made


def places(state: LogState) -> list[tuple[str, str]]:
    return [one.place for one in due(state)]


def test_only_a_proven_drop_makes_a_copy_due(log: Log) -> None:
    assert places(log.has(dropped(1, drop=False))) == []
    log.has(added(1, version=2))
    state = log.has(dropped(1), step("free"))
    assert places(state) == [PLACE] and state.dropped[0].table_ids == (1,)
    assert state.dropped[0].generation == 3


def test_a_log_without_such_drops_is_stored_as_before(log: Log) -> None:
    """So an older version reads it."""
    state = log.has(dropped(1, drop=False))
    assert "dropped" not in state.model_dump(mode="json")
    assert set(dropped(1, drop=False).model_dump(mode="json")) == {"kind", "table_id", "reason"}


def test_the_place_is_another_table_s_from_its_record_on(log: Log) -> None:
    assert places(log.has(dropped(1), added(2))) == []
    assert places(log.has(step("begun"))) == [], "without effect: the place is taken"
    assert not is_blocked(log.state, PLACE)


def test_a_later_look_must_find_no_table_of_the_name(log: Log) -> None:
    assert places(log.has(dropped(1))) == []
    assert places(log.has(step("begun"))) == [] and not is_blocked(log.state, PLACE)
    assert places(log.has(step("free"))) == [PLACE]


def test_a_table_that_is_captured_and_dropped_in_turn_is_looked_for_again(log: Log) -> None:
    log.has(dropped(1))
    assert places(log.has(added(2))) == []
    assert places(log.has(dropped(2))) == []
    state = log.has(step("free"))
    assert places(state) == [PLACE] and state.dropped[0].table_ids == (1, 2), "its copy may still be the former one's"


def test_names_that_differ_in_case_only_may_be_one_place(log: Log) -> None:
    assert places(log.has(dropped(1), added(2, "T"))) == []
    log.has(TableRemoved(table_id=2, reason="excluded"), step("free"))
    log.has(step("begun"))
    assert is_blocked(log.state, ("public", "T"))


def test_who_takes_the_place_of_a_copy_that_may_be_half_deleted_waits(log: Log) -> None:
    log.has(dropped(1), step("free"))
    log.has(step("begun"))
    state = log.has(added(2))
    assert places(state) == [PLACE] and is_blocked(state, PLACE)
    state = log.has(step("dropped"))
    assert places(state) == [] and not is_blocked(state, PLACE)


def test_nothing_is_deleted_that_was_not_begun(log: Log) -> None:
    log.has(dropped(1), step("free"))
    assert places(log.has(step("dropped"))) == [PLACE]
    assert places(log.has(step("kept"))) == []


def test_a_table_that_is_only_deselected_later_brings_back_what_came_before_it(log: Log) -> None:
    """Until its own copy was complete the place showed the copy of the dropped one; ids and generation tell them
    apart."""
    log.has(dropped(1), added(2))
    state = log.has(dropped(2, drop=False))
    assert [(d.table_ids, d.generation) for d in due(state)] == [((1,), 1)]


def test_while_every_table_starts_over_nothing_new_begins(log: Log) -> None:
    log.has(dropped(1), step("free"))
    renewed = SourceRenewed(id="again", identity={}, request="again")
    assert places(log.has(renewed)) == []
    assert places(log.has(step("begun"))) == []


def test_a_copy_that_is_gone_is_nobody_s_to_remember(log: Log) -> None:
    log.has(Applied(table_id=1, applied_seq=Seq(0), applied_record=RecordNumber(1)))
    log.has(dropped(1), step("free"))
    log.has(step("begun"))
    log.has(step("dropped"))
    assert log.has(TableForgotten(table_id=1)).forgotten_tables == ()


def test_a_copy_that_stays_is_remembered(log: Log) -> None:
    log.has(Applied(table_id=1, applied_seq=Seq(0), applied_record=RecordNumber(1)))
    log.has(dropped(1))
    log.has(step("kept"))
    assert log.has(TableForgotten(table_id=1)).forgotten_tables == (PLACE,)


def test_a_name_that_is_dropped_and_made_again_for_years_takes_no_more_room(log: Log) -> None:
    for table_id in range(2, KEPT_IDS * 3):
        log.has(dropped(table_id - 1), added(table_id))
    (one,) = log.state.dropped
    assert len(one.table_ids) == KEPT_IDS and one.table_ids[-1] == KEPT_IDS * 3 - 2
