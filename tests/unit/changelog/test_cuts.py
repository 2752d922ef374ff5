"""What the fold makes of cuts: which tables they wait for, what they keep, and when a table leaves them."""

from random import Random

import pytest

from support.journals import Journal, table_schema
from tailrace.changelog import cuts
from tailrace.changelog.records import Event
from tailrace.changelog.records.cuts import CutDropped, CutHeld, CutMade
from tailrace.changelog.records.tables import (
    Cascaded,
    CascadesLooked,
    CopyRemoval,
    ReachedRows,
    TableAdded,
    TableForgotten,
    TableRemoved,
    TableStopped,
)
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.state import LoggedCut, LogState, fold
from tailrace.errors import CorruptLog


def added(table_id: int, version: int = 1, *, must_hide: bool = False, name: str | None = None) -> TableAdded:
    schema = table_schema(table_id, version)
    named = schema if name is None else schema.model_copy(update={"table_name": name})
    return TableAdded(table=named, edge="5", must_hide=must_hide)


def removed(table_id: int, *, drop: bool = False) -> TableRemoved:
    return TableRemoved(table_id=table_id, reason="it was dropped", drop=drop)


class Log:
    """A log of tables that were read whole, and one (4) that was not."""

    def __init__(self) -> None:
        self._journal = Journal(Random(1))
        self.state = fold(LogState(), self._journal.origin())
        self.has(*(added(i) for i in (1, 2, 3, 4)))
        read = {i: self.state.tables[i].model_copy(update={"read_record": 2}) for i in (1, 2, 3)}
        self.state = self.state.model_copy(update={"tables": {**self.state.tables, **read}})

    def has(self, *events: Event) -> LogState:
        """A record with them; the state goes through its stored form."""
        state = fold(self.state, self._journal.plain(events=events))
        self.state = LogState.model_validate_json(state.model_dump_json())
        assert self.state == state
        return self.state

    def cut(self, *events: Event) -> LoggedCut:
        """The only cut behind a record with these."""
        (cut,) = self.has(*events).cuts.values()
        return cut


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_cut_is_its_record_and_waits_for_the_tables_that_were_read(log: Log) -> None:
    log.has(TableStopped(table_id=3, seq=Seq(log.state.last_seq), error="NoKey", message="", fix="", where="source"))
    cut = log.cut(CutMade(name="noon"))
    assert (cut.record, cut.position, cut.scheduled) == (log.state.number, log.state.position, False)
    assert cut.awaited == {1, 2}
    assert cut.without == {3: "it was stopped (NoKey)", 4: cuts.BEING_READ}


@pytest.mark.parametrize("behind", [False, True], ids=["before the cut", "behind it in its record"])
def test_a_table_whose_rows_foreign_keys_have_changed_is_not_in_the_cut_until_they_were_read(
    log: Log, behind: bool
) -> None:
    reached = Cascaded(table_id=2, rows=(ReachedRows(columns=(1,), values=(("4",),)),))
    events: list[Event] = [CutMade(name="a"), reached] if behind else [reached, CutMade(name="a")]
    cut = log.cut(*events)
    assert cut.awaited == {1, 3} and cut.without[2] == cuts.CONVERGING
    log.has(CutDropped(name="a"))
    assert log.cut(CutMade(name="b")).without[2] == cuts.CONVERGING
    looked = CascadesLooked(table_id=2, records=(log.state.tables[2].cascades[0].record,), snapshots=())
    log.has(CutDropped(name="b"), looked)
    assert log.cut(CutMade(name="c")).awaited == {1, 2, 3}
    assert log.cut(reached).awaited == {1, 2, 3}, "of a later record"


def test_tables_come_to_it_one_after_the_other_and_their_first_version_counts(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12}, without={2: "rows were withheld"}))
    cut = log.cut(CutHeld(name="noon", versions={1: 13, 3: None, 4: 5}))
    assert (cut.awaited, cut.versions) == (frozenset(), {1: 12, 3: None})
    assert cut.without == {2: "rows were withheld", 4: cuts.BEING_READ}
    assert cuts.kept_versions(log.state, log.state.tables[1]) == {"noon": 12}
    assert cuts.kept_versions(log.state, log.state.tables[3]) == {}


def test_a_version_that_is_gone_is_no_longer_in_the_cut(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12, 2: 7, 3: 1}))
    cut = log.cut(CutHeld(name="noon", without={1: cuts.MADE_AGAIN}))
    assert (cut.versions, cut.without) == ({2: 7, 3: 1}, {1: cuts.MADE_AGAIN, 4: cuts.BEING_READ})
    assert cuts.kept_versions(log.state, log.state.tables[1]) == {}


def test_a_name_is_taken_until_the_cut_is_dropped(log: Log) -> None:
    log.has(CutMade(name="noon"))
    with pytest.raises(CorruptLog, match="cut noon is made already"):
        log.has(CutMade(name="noon"))


def test_a_dropped_cut_keeps_nothing_and_what_comes_late_has_no_effect(log: Log) -> None:
    log.has(CutMade(name="noon"))
    assert log.has(CutDropped(name="noon")).cuts == {}
    assert log.has(CutHeld(name="noon", versions={1: 12}), CutDropped(name="noon")).cuts == {}
    log.has(CutMade(name="noon"))


def test_a_table_that_starts_over_leaves_the_cuts_that_wait_for_it_and_stays_in_others(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12}))
    cut = log.cut(removed(1), removed(2))
    assert cut.awaited == {2, 3}, "what was committed before the drop still comes"
    cut = log.cut(added(1, 2), added(2, 2))
    assert cut.awaited == {3} and cut.versions == {1: 12}
    assert cut.without[2] == cuts.STARTED_OVER
    assert cuts.kept_versions(log.state, log.state.tables[1]) == {"noon": 12}


@pytest.mark.parametrize("table_id", [1, 3])
def test_what_must_be_hidden_is_not_kept(log: Log, table_id: int) -> None:
    """By the same table again, or by another one that takes its place."""
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12, 2: 13}))
    log.has(removed(1), removed(3))
    cut = log.cut(added(table_id, 2, must_hide=True, name="t1"))
    assert (cut.versions, cut.without[1]) == ({2: 13}, cuts.HIDDEN)


def test_a_version_stays_when_another_table_takes_the_place(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12}))
    log.has(removed(1), added(9, name="t1"))
    assert cuts.kept_versions(log.state, log.state.tables[9]) == {"noon": 12}


def test_versions_go_with_the_copy(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12}))
    log.has(removed(1, drop=True))
    log.has(CopyRemoval(schema_name="public", table_name="t1", step="free"))
    cut = log.cut(CopyRemoval(schema_name="public", table_name="t1", step="begun"))
    assert (cut.versions, cut.without[1]) == ({}, cuts.DELETED)


def test_a_forgotten_table_is_in_no_cut(log: Log) -> None:
    log.has(CutMade(name="noon"))
    log.has(CutHeld(name="noon", versions={1: 12}))
    log.has(removed(1), removed(4))
    cut = log.cut(TableForgotten(table_id=1), TableForgotten(table_id=4))
    assert not cut.versions and not cut.without and cut.awaited == {2, 3}
