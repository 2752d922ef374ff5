"""Tables that come and go for years: what is left of them in the state."""

from random import Random

from support.journals import Journal, table_schema
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.tables import Applied, TableAdded, TableForgotten, TableRemoved
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.retention import Ages, Pins, removal
from tailrace.changelog.state import LogState, fold

HOUR = 3_600_000_000


def ages(state: LogState, hours: float) -> Ages:
    return Ages(now=int(hours * HOUR), retention=HOUR, retry=HOUR)


def test_a_thousand_tables_that_were_removed_leave_their_names_at_most() -> None:
    """All that was known of each of them stayed for good."""
    journal = Journal(Random(1))
    journal.origin()
    for number in range(200):
        table = table_schema(100 + number).model_copy(update={"table_name": f"t{number % 20}"})
        journal.plain(events=(TableAdded(table=table, edge="5"),))
        journal.plain(events=(Applied(table_id=100 + number, applied_seq=Seq(0), applied_record=journal.state.number),))
        journal.plain(events=(TableRemoved(table_id=100 + number, reason="it was dropped"),))
        state = journal.state
        pins = Pins(Seq(state.last_seq + 1))
        going = removal(state, pins, Ages(now=state.number * 1_000_000 + 30_000_000, retention=0, retry=20_000_000))
        if going.events:
            journal.plain(events=going.events)
    assert len(journal.state.tables) < 20
    assert len(journal.state.forgotten_tables) <= 20
    assert LogState.model_validate_json(journal.state.model_dump_json()) == journal.state


def test_a_removed_table_is_forgotten_only_when_nothing_of_it_is_needed() -> None:
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=tuple(TableAdded(table=table_schema(i), edge="5") for i in (1, 2)))
    journal.plain(1, segments=(journal._segment(1, 1, 1, 1),))
    removed = tuple(TableRemoved(table_id=i, reason="it was dropped") for i in (1, 2))
    journal.plain(events=(SnapshotPlanned(snapshot_id="s", tables=(2,)), *removed))
    state, pins = journal.state, Pins(Seq(2))
    assert [e.kind for e in removal(state, pins, ages(state, 0.5)).events] == ["transactions-removed"]
    first = removal(state, pins, ages(state, 3)).events
    assert [e.kind for e in first if e.kind != "transactions-removed"] == ["segments-removed"], "its files go first"
    state = fold(state, Journal.following(state, first))
    assert removal(state, pins, ages(state, 3)).events == (TableForgotten(table_id=1),)


def test_a_table_that_comes_back_after_it_was_forgotten_is_a_new_one() -> None:
    journal = Journal(Random(1))
    journal.origin()
    journal.plain(events=(TableAdded(table=table_schema(1), edge="5"),))
    journal.plain(events=(Applied(table_id=1, applied_seq=Seq(0), applied_record=RecordNumber(1)),))
    journal.plain(events=(TableRemoved(table_id=1, reason=""),))
    journal.plain(events=(TableForgotten(table_id=1),))
    assert [name for _, name in journal.state.forgotten_tables] == ["t1"]
    journal.plain(events=(TableAdded(table=table_schema(1), edge="9"),))
    assert [name for _, name in journal.state.forgotten_tables] == ["t1"], "its target stands before it is applied"
    back = journal.state.tables[1]
    assert (back.generation, back.added_record, back.schema.version) == (journal.state.number, journal.state.number, 1)
