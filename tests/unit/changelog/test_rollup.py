"""Roll-ups: each block is stored once, what is no longer needed goes, and what is loaded is what was stored."""

from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

from support import states
from support.journals import Journal
from support.origins import origin
from support.transactions import numbered
from tailrace.changelog import writer
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.packed import BLOCK
from tailrace.changelog.paths import PARTS, part_path, record_path, segment_path
from tailrace.changelog.records import Segment
from tailrace.changelog.records.tables import SegmentsRemoved, TableAdded, TransactionsRemoved
from tailrace.changelog.records.terms import Column, Position, Seq, TableSchema
from tailrace.changelog.rollup import Rollups, numbers, trim_rollups
from tailrace.changelog.trim import KEPT_ROLLUPS
from tailrace.changelog.writer import ROLLUP_AT_END, JournalWriter
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog
from tailrace.storage.store import Storage

ORIGIN = origin()
COLUMN = Column(name="id", id=1, source_type="bigint", type="int64", key=0)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))


def table(table_id: int) -> TableSchema:
    return TableSchema(table_id=table_id, schema_name="s", table_name=f"t{table_id}", version=1, columns=(COLUMN,))


def segment(table_id: int, seq: int) -> Segment:
    path = segment_path(table(table_id), Seq(seq), Seq(seq), f"{seq * 7919:016x}")
    return states.segment(table_id, seq, path=path, size=99)


def change(one: JournalWriter, tables: int) -> None:
    """A record with a segment for each of the tables."""
    first = one.state.last_seq + 1
    seqs = tuple(range(first, first + tables))
    segments = tuple(segment(1 + n, seq) for n, seq in enumerate(seqs))
    transactions = numbered(seqs, seqs)
    one.append(
        Position(one.state.position + 1),
        Seq(seqs[-1]),
        transactions=transactions,
        segments=segments,
        commit_time=(1, 1),
    )


def started(storage: Storage, tables: int) -> JournalWriter:
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    one.append(Position(6), events=tuple(TableAdded(table=table(1 + n), edge="1") for n in range(tables)))
    return one


def written(storage: Storage) -> dict[str, int]:
    return {path: size for path, size in storage.list("journal/") if "/rollup/" in path or "/parts/" in path}


def test_a_roll_up_writes_what_is_new_however_large_the_state_is(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one document it wrote all of it again: the last was twelve times the first."""
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", BLOCK)
    one = started(storage, 4)
    sizes, before = [], dict[str, int]()
    for _ in range(12):
        for _ in range(BLOCK):
            change(one, 4)
        after = written(storage)
        sizes.append(sum(size for path, size in after.items() if path not in before))
        before = after
    assert len(one.state.tables[1].segments) == 12 * BLOCK
    assert max(sizes[2:]) < 1.3 * sizes[1], sizes
    assert JournalReader.open(storage).state == one.state


def test_any_state_comes_back_from_its_roll_ups(storage: Storage) -> None:
    """Random journals, with a roll-up now and then by one of two writers, of which the other loads the newest."""
    for seed in range(3):
        place = Storage.open(StorageLocation(location=f"{storage.root}-{seed}"))
        random, rollups = Random(seed), Rollups()
        journal = Journal(random)
        for record in journal.records(400):
            place.put(record_path(record.number), record.model_dump_json().encode())
            if random.random() < 0.05:
                rollups.write(place, journal.state)
                trim_rollups(place, KEPT_ROLLUPS)
                if random.random() < 0.5:
                    rollups, state = Rollups.load(place)
                    assert state == journal.state
        assert JournalReader.open(place).state == journal.state


def test_parts_go_with_the_last_roll_up_that_needs_them(storage: Storage) -> None:
    one, rollups = started(storage, 1), Rollups()
    for _ in range(3):
        for _ in range(BLOCK):
            change(one, 1)
        rollups.write(storage, one.state)
    storage.put(part_path(one.state.number - 1), b"{}")  # of a writer that died before its roll-up
    trim_rollups(storage, KEPT_ROLLUPS)
    assert len(numbers(storage, PARTS)) == 3
    through = one.state.last_seq - 3
    one.append(
        one.state.position,
        events=(SegmentsRemoved(table_id=1, through_seq=Seq(through)), TransactionsRemoved(through_seq=Seq(through))),
    )
    for _ in range(KEPT_ROLLUPS):
        one.append(one.state.position)
        rollups.write(storage, one.state)
        trim_rollups(storage, KEPT_ROLLUPS)
    # Commit times of records that nobody has applied, and the last lines of segments and transactions.
    assert JournalReader.open(storage).state == one.state
    assert len(JournalReader.open(storage).state.tables[1].segments) == 3


def test_a_table_that_comes_back_does_not_meet_its_old_blocks(storage: Storage) -> None:
    one, rollups = started(storage, 1), Rollups()
    for _ in range(BLOCK + 1):
        change(one, 1)
    rollups.write(storage, one.state)
    begun = one.state.tables[1]
    again = begun.model_copy(update={"added_record": 500, "segments": type(begun.segments)()})
    state = one.state.model_copy(update={"tables": {1: again}})
    for seq in range(9_000, 9_000 + BLOCK + 5):
        logged = begun.segments[0].model_copy(update={"segment": segment(1, seq)})
        again = state.tables[1].model_copy(update={"segments": state.tables[1].segments.append(logged)})
        state = state.model_copy(update={"tables": {1: again}})
    state = state.model_copy(update={"number": state.number + 1})
    rollups.write(storage, state)
    assert Rollups.load(storage)[1] == state


def test_a_part_that_is_missing_is_named(storage: Storage) -> None:
    one, rollups = started(storage, 1), Rollups()
    for _ in range(BLOCK):
        change(one, 1)
    rollups.write(storage, one.state)
    storage.put(part_path(one.state.number), b'{"number": 1, "rows": {}}')
    with pytest.raises(CorruptLog, match="roll-up 129 is not readable"):
        Rollups.load(storage)
    storage.delete(part_path(one.state.number))
    with pytest.raises(CorruptLog, match=r"roll-up 129 names a part that is missing.*remove the roll-up if"):
        Rollups.load(storage)


def test_short_runs_make_a_roll_up_so_that_no_start_reads_many_records(storage: Storage) -> None:
    """Counted from each start, a thousand records never came together."""
    started(storage, 1)
    for number in range(60):
        one = JournalWriter.claim(storage, f"n{number}")
        for _ in range(4):
            change(one, 1)
        one.finish()
        newest, _ = Rollups.load(storage)
        assert one.state.number - newest.number < ROLLUP_AT_END + 10


def test_records_of_many_starts_count_for_the_next_roll_up(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every run is killed, so that none has an end."""
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 30)
    started(storage, 1)
    for number in range(40):
        JournalWriter.claim(storage, f"n{number}")
    assert Rollups.load(storage)[0].number >= 29


def test_a_reader_that_polls_all_the_time_finds_out_that_its_next_record_has_gone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for the record that was gone, again and again, and took it for one that is still to come."""
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    now = [0.0]
    one = started(storage, 1)
    reader = JournalReader.open(storage, clock=lambda: now[0])
    for _ in range(10):
        change(one, 1)
    for number in range(9):
        storage.delete(record_path(number))
    for _ in range(20):
        now[0] += 5.0
        reader.poll()
    assert reader.state == one.state


def test_a_reader_that_is_passed_by_while_it_opens_begins_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    one = started(storage, 1)

    class Passed(Storage):
        """While record 3 is on its way, the journal goes on and its old records are removed."""

        @override
        def get(self, path: str) -> bytes:
            data = super().get(path)
            if path == record_path(1):
                for _ in range(10):
                    change(one, 1)
                for number in range(9):
                    self.delete(record_path(number))
            return data

    assert JournalReader.open(Passed(storage.access)).state == one.state
