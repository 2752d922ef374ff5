"""Writers and readers of the journal on a local folder: claims, races, unknown outcomes, roll-ups."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from support.origins import origin
from support.transactions import numbered
from tailrace.changelog import writer
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import record_path
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.tables import TableAdded
from tailrace.changelog.records.terms import Column, Position, ResumePoint, Seq, TableSchema
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter, RecordRefused
from tailrace.contract.resources import StorageLocation
from tailrace.errors import CorruptLog, Fenced, OutcomeUnknown, Retry, SourceRefused
from tailrace.storage.store import AlreadyExists, NotFound, Storage

ORIGIN = origin()
TABLE = TableSchema(
    table_id=1,
    schema_name="public",
    table_name="t",
    version=1,
    columns=(Column(name="id", id=1, source_type="bigint", type="int64", key=0),),
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{tmp_path}/log"))


def row(writer_: JournalWriter, xid: int = 7) -> None:
    seq = writer_.state.last_seq + 1
    writer_.append(
        Position(writer_.state.position + 1),
        Seq(seq),
        transactions=numbered((xid,), (seq,)),
        commit_time=(1, 1),
    )


class Faulty(Storage):
    """Reports `OutcomeUnknown` for the creations that `plan` names: "lost" did not happen, "done" did. "conflict" did
    not happen, and is refused as if the name were taken: S3's 409, for one of two writes at the same time."""

    def __init__(self, storage: Storage, plan: list[str], meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(storage.access)
        self.plan = plan
        self.meanwhile = meanwhile
        """What others do just before a creation."""

    @override
    def create(self, path: str, data: bytes) -> None:
        self.meanwhile()
        fault = self.plan.pop(0) if self.plan else "none"
        if fault == "conflict":
            raise AlreadyExists(path)
        if fault != "lost":
            super().create(path, data)
        if fault != "none":
            raise OutcomeUnknown(f"{path}: timed out")


def no_sleep(seconds: float) -> None:
    assert seconds > 0


def test_a_reader_sees_what_the_writer_wrote_in_order(storage: Storage) -> None:
    first = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    reader = JournalReader.open(storage)
    first.append(Position(6), events=(TableAdded(table=TABLE, edge="3"),))
    row(first)
    assert [r.number for r in reader.poll()] == [1, 2]
    assert reader.state == first.state
    assert reader.poll() == []


def test_a_change_log_is_created_once(storage: Storage) -> None:
    JournalWriter.create(storage, ORIGIN, Position(5), "a")
    with pytest.raises(AlreadyExists):
        JournalWriter.create(storage, ORIGIN, Position(5), "b")


def test_claiming_where_there_is_no_change_log_says_so(storage: Storage) -> None:
    with pytest.raises(NotFound):
        JournalWriter.claim(storage, "a")


def test_of_two_writers_the_lower_epoch_stops_and_its_record_is_not_written(storage: Storage) -> None:
    old = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    new = JournalWriter.claim(storage, "b")
    assert new.state.epoch == 1
    with pytest.raises(Fenced):
        row(old)
    with pytest.raises(Fenced):
        row(old)
    row(new)
    assert JournalReader.open(storage).state == new.state


def test_a_writer_that_has_lost_its_slot_learns_whether_another_one_has_gone_on(storage: Storage) -> None:
    old = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    old.check_owned()
    JournalWriter.claim(storage, "b")
    with pytest.raises(Fenced, match="another writer"):
        old.check_owned()


def test_a_claim_that_loses_a_record_to_the_old_writer_keeps_that_record(storage: Storage) -> None:
    old = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    raced = False

    class Racing(Storage):
        @override
        def create(self, path: str, data: bytes) -> None:
            nonlocal raced
            if not raced:
                raced = True
                row(old)
            super().create(path, data)

    new = JournalWriter.claim(Racing(storage.access), "b")
    assert (new.state.number, new.state.epoch, new.state.last_seq) == (2, 1, 1)
    with pytest.raises(Fenced):
        row(old)


@pytest.mark.parametrize("plan", [["done"], ["lost"], ["lost", "done"], ["lost", "lost", "lost"], ["conflict"]])
def test_an_unknown_outcome_is_resolved_without_loss_or_fencing(storage: Storage, plan: list[str]) -> None:
    faulty = Faulty(storage, [])
    one = JournalWriter.create(faulty, ORIGIN, Position(5), "a", sleep=no_sleep)
    faulty.plan = plan
    row(one)
    row(one)
    assert JournalReader.open(storage).state == one.state
    assert one.state.number == 2


def test_a_timed_out_write_that_the_new_writer_overtook_is_fenced(storage: Storage) -> None:
    faulty = Faulty(storage, [])
    old = JournalWriter.create(
        faulty, ORIGIN, Position(5), "a", sleep=lambda _: claimed.append(JournalWriter.claim(storage, "b"))
    )
    claimed: list[JournalWriter] = []
    faulty.plan = ["lost"]
    with pytest.raises(Fenced):
        row(old)
    assert JournalReader.open(storage).state == claimed[0].state


class Contest:
    """Writers that come and go on one journal. Whatever a writer says is durable must be in the journal, once."""

    def __init__(self, storage: Storage, random: Random) -> None:
        self.storage = storage
        self.random = random
        self.writers: list[JournalWriter] = []
        self.busy: list[JournalWriter] = []
        self.durable: list[int] = []
        self.attempted = 0
        self.over = False
        self._depth = 0

    def act(self) -> None:
        """A new writer claims the journal, or one of the writers appends; each may happen inside another's attempt."""
        if not self.writers or self.random.random() < 0.15:
            self._claim()
        else:
            self._append(self.random.choice(self.writers))

    def _plan(self) -> list[str]:
        return self.random.choices(["none", "lost", "done"], k=self.random.randint(0, 3))

    def _meanwhile(self, _seconds: float = 0) -> None:
        if not self.over and self._depth < 2 and self.random.random() < 0.5:
            self._depth += 1
            self.act()
            self._depth -= 1

    def _claim(self) -> None:
        faulty = Faulty(self.storage, self._plan(), self._meanwhile)
        self.writers.append(JournalWriter.claim(faulty, f"w{self.random.random()}", sleep=self._meanwhile))

    def _append(self, chosen: JournalWriter) -> None:
        if chosen in self.busy:
            return
        self.attempted += 1
        xid = self.attempted
        assert isinstance(chosen.storage, Faulty)
        chosen.storage.plan = self._plan()
        self.busy.append(chosen)
        try:
            row(chosen, xid)
        except Fenced:
            assert chosen.state.epoch < JournalReader.open(self.storage).state.epoch
            self.writers.remove(chosen)
        else:
            self.durable.append(xid)
        finally:
            self.busy.remove(chosen)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_among_racing_writers_with_unknown_outcomes_no_durable_record_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path_factory.mktemp('race')}"))
    JournalWriter.create(storage, ORIGIN, Position(5), "first")
    contest = Contest(storage, Random(seed))
    for _ in range(10):
        contest.act()
    state = JournalReader.open(storage).state
    numbers = [start.number for start in state.transactions.starts]
    assert set(contest.durable) <= set(numbers)
    assert len(set(numbers)) == len(numbers)
    contest.over = True
    for survivor in [w for w in contest.writers if w.state.epoch < state.epoch]:
        with pytest.raises(Fenced):
            row(survivor)
    assert JournalReader.open(storage).state == state


def test_a_writer_that_ran_out_of_patience_writes_no_more(storage: Storage) -> None:
    faulty = Faulty(storage, [])
    now = iter(range(0, 100_000, 20))
    one = JournalWriter.create(faulty, ORIGIN, Position(5), "a", sleep=no_sleep, monotonic=lambda: float(next(now)))
    faulty.plan = ["done"] + ["lost"] * 50
    one._patience = -1
    for _ in range(2):  # not Fenced, which nobody restarts: there is no other writer
        with pytest.raises(Retry, match="not finished by this writer"):
            row(one)
    assert JournalReader.open(storage).state.number == 1


def test_a_claim_where_records_are_missing_under_their_roll_up_ends(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an endless attempt to write behind a record that nobody can put back."""
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    for _ in range(4):
        row(one)
    for number in range(5):
        storage.delete(record_path(number))
    with pytest.raises(CorruptLog, match="record 4 is missing"):
        JournalWriter.claim(storage, "b")
    assert not storage.exists(record_path(5))


def test_a_gap_is_not_taken_for_the_end_of_the_journal(storage: Storage) -> None:
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    for _ in range(5):
        row(one)
    storage.put(f"{record_path(3)}.bak", storage.get(record_path(3)))
    storage.delete(record_path(3))
    with pytest.raises(CorruptLog, match="record 3 is missing, and record 4 is there"):
        JournalReader.open(storage)
    with pytest.raises(CorruptLog, match="record 3 is missing, and record 4 is there"):
        JournalWriter.claim(storage, "b")
    assert not storage.exists(record_path(3)), "nothing may be written into it"


def test_a_claim_that_the_state_does_not_admit_leaves_the_writer_alone(storage: Storage) -> None:
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")

    def refuse(state: LogState) -> None:
        raise SourceRefused(f"not the source of {state.origin}")

    with pytest.raises(SourceRefused):
        JournalWriter.claim(storage, "b", refuse)
    row(one)
    assert one.state.number == 1


def test_a_record_that_does_not_fit_is_refused_before_it_is_written(storage: Storage) -> None:
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    with pytest.raises(RecordRefused):
        one.append(Position(4))
    with pytest.raises(NotFound):
        storage.get(record_path(1))
    one.append(Position(5), events=(Heartbeat(),))
    assert one.state.number == 1


def test_a_start_from_a_roll_up_gives_the_same_state(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    one.append(Position(6), events=(TableAdded(table=TABLE, edge="3"),))
    for _ in range(10):
        row(one)
    assert Rollups.load(storage)[1].number == 9
    for number in range(9):
        storage.delete(record_path(number))
    assert JournalReader.open(storage).state == one.state


def test_a_sleeping_writer_cannot_write_where_old_records_were_removed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    old = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    new = JournalWriter.claim(storage, "b")
    for _ in range(10):
        row(new)
    for number in range(9):
        storage.delete(record_path(number))
    with pytest.raises(Fenced):
        row(old)
    assert not storage.exists(record_path(1))
    assert JournalReader.open(storage).state == new.state


def test_a_sleeping_reader_goes_on_from_the_roll_up_when_its_records_are_gone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROLLUP_RECORDS", 5)
    now = [0.0]
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a")
    reader = JournalReader.open(storage, clock=lambda: now[0])
    for _ in range(10):
        row(one)
    for number in range(9):
        storage.delete(record_path(number))
    now[0] = 3600.0
    assert [r.number for r in reader.poll()] == [10]
    assert reader.state == one.state


def test_the_source_s_state_holds_until_another_one_is_told(storage: Storage) -> None:
    one = JournalWriter.create(storage, ORIGIN, Position(5), "a", source_state="uuid:1-5")
    one.append(Position(6), events=(Heartbeat(),), source_state="uuid:1-6")
    same = one.append(Position(7), events=(Heartbeat(),), source_state="uuid:1-6")
    silent = one.append(Position(7), events=(Heartbeat(),))
    assert (same.source_state, silent.source_state) == (None, None), "a set of GTIDs may be long: it is stored once"
    assert JournalWriter.claim(storage, "b").state.resume_point == ResumePoint(Position(7), "uuid:1-6")


def test_a_source_without_a_state_has_none(storage: Storage) -> None:
    JournalWriter.create(storage, ORIGIN, Position(5), "a").append(Position(6), events=(Heartbeat(),))
    assert JournalReader.open(storage).state.resume_point == ResumePoint(Position(6))
