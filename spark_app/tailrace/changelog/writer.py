"""The journal's one writer: claims an epoch, then appends records, each created exclusively.

Capture makes it at its start. Of two writers the one with the lower epoch always stops: the writer that creates record
*n* first owns it, and the other, finding a record that is not its own at *n*, is fenced.
"""

import time
from collections.abc import Callable

from tailrace.changelog.journal import (
    ROLLUP_BYTES,
    ROLLUP_RECORDS,
    JournalReader,
    parse_record,
)
from tailrace.changelog.paths import ROLLUPS, record_path
from tailrace.changelog.records import EpochStarted, Event, Origin, Record, Segment, Transactions
from tailrace.changelog.records.terms import Position, RecordNumber, Seq
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.state import LogState, fold
from tailrace.errors import CorruptLog, Fenced, OutcomeUnknown, Retry, StorageFull, TailraceError
from tailrace.seams import seam
from tailrace.storage.store import AlreadyExists, NotFound, Storage

ONE_WRITER = "Exactly one process may run a Replicator; this one stops."
SAME_OWNER = EpochStarted()
ROLLUP_AT_END = 100
"""Records after which the end of a run is worth a roll-up: as many reads that the next start is spared."""
FIRST_WAIT = 0.05
LONGEST_WAIT = 2.0
Clock = Callable[[], float]
Sleep = Callable[[float], None]


class RecordRefused(TailraceError):
    """The record does not follow from the state; nothing was written."""


class JournalWriter:
    """`state` is the fold of every durable record. `patience`: seconds to try one record before `Retry`."""

    def __init__(
        self,
        storage: Storage,
        state: LogState,
        nonce: str,
        *,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        patience: float = 60.0,
        rollups: Rollups | None = None,
        read: int = 0,
    ) -> None:
        """`rollups`: what the newest one holds; `read`: bytes of the records after it."""
        self.storage = storage
        self.state = state
        self.nonce = nonce
        self._clock, self._monotonic = clock, monotonic
        self._sleep = sleep
        self._patience = patience
        self._rollups = Rollups() if rollups is None else rollups
        self._bytes_since_rollup = read
        self._lost: TailraceError | None = None
        """The reason why this writer must not write any longer: fenced, or the outcome of its last record is not
        known."""

    @classmethod
    def create(
        cls,
        storage: Storage,
        origin: Origin,
        position: Position,
        nonce: str,
        *,
        source_state: str | None = None,
        **timing: object,
    ) -> "JournalWriter":
        """Begin a change log: record 0 holds its origin. `AlreadyExists`: there is one."""
        writer = cls(storage, LogState(), nonce, **timing)  # type: ignore[arg-type]  # the constructor's own keywords
        try:
            record = writer._record(0, position, Seq(0), events=(origin,))
            writer._write(record.model_copy(update={"source_state": source_state}))
        except Fenced as error:
            raise AlreadyExists(f"{storage.uri(record_path(0))} exists") from error
        return writer

    @classmethod
    def claim(
        cls,
        storage: Storage,
        nonce: str,
        admit: Callable[[LogState], None] = lambda _: None,
        *,
        started: EpochStarted = SAME_OWNER,
        **timing: object,
    ) -> "JournalWriter":
        """Take over an existing change log (`NotFound`: there is none): fold it all, then commit a higher epoch. A
        writer still at work may add records meanwhile: they are folded, and the claim moves behind them. `admit` looks
        at the state first: what it raises leaves the present writer alone. `started` says whose log it is then."""
        beaten = -1
        while True:
            reader = _folded(storage)
            state = reader.state
            if state.number < 0:
                raise NotFound(f"{storage.root} holds no change log")
            if state.number == beaten:
                raise CorruptLog(
                    f"journal record {state.number} is missing, a roll-up that follows it is not",
                    "Put the journal's records back, or start a new change log and take a snapshot.",
                )
            admit(state)
            beaten = state.number
            known = {"rollups": reader.rollups, "read": reader.bytes}
            writer = cls(storage, state, nonce, **known, **timing)  # type: ignore[arg-type]  # the constructor's own keywords
            try:
                writer._write(writer._record(state.epoch + 1, state.position, state.last_seq, events=(started,)))
            except Fenced:
                continue
            except NotFound as error:
                raise _changed(error) from error
            return writer

    def append(
        self,
        position: Position,
        last_seq: Seq | None = None,
        *,
        source_state: str | None = None,
        transactions: Transactions | None = None,
        segments: tuple[Segment, ...] = (),
        events: tuple[Event, ...] = (),
        commit_time: tuple[int, int] | None = None,
    ) -> Record:
        """Write the next record; when this returns, it is durable and folded. `last_seq` None: no changes.
        `source_state` None: what held before.

        `Fenced`: another writer owns the journal. `RecordRefused`: it does not fit and was not written. `Retry`: its
        outcome stays unknown; this writer is then of no use: claim again.
        """
        last = self.state.last_seq if last_seq is None else last_seq
        record = self._record(self.state.epoch, position, last, events=events)
        changes = {
            "source_state": None if source_state == self.state.source_state else source_state,
            "transactions": transactions or Transactions(),
            "segments": segments,
            "commit_time": commit_time,
        }
        record = record.model_copy(update=changes)
        self._write(record)
        return record

    def _record(self, epoch: int, position: Position, last_seq: Seq, events: tuple[Event, ...]) -> Record:
        return Record(
            number=RecordNumber(self.state.number + 1),
            epoch=epoch,
            nonce=self.nonce,
            first_seq=Seq(self.state.last_seq + 1),
            last_seq=last_seq,
            position=position,
            written_at=int(self._clock() * 1_000_000),
            events=events,
        )

    def _write(self, record: Record) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            state = fold(self.state, record)
        except CorruptLog as error:
            raise RecordRefused(error.message, error.fix) from error
        data = record.model_dump_json().encode()
        # Whatever interrupts this writer from here on leaves it without knowledge of the head.
        unfinished = f"journal record {record.number} was begun and not finished by this writer"
        self._lost = Retry(unfinished, "Start again: a new writer claims the journal.")
        seam("journal.before-create")
        self._patiently(lambda: self._create(record, data))
        # Dying here is safe: the record is durable, and the next writer folds it.
        seam("journal.after-create")
        self._patiently(lambda: self._check_predecessor(record))
        self._lost = None
        self.state = state
        self._bytes_since_rollup += len(data)
        if self._since_rollup >= ROLLUP_RECORDS or self._bytes_since_rollup >= ROLLUP_BYTES:
            self._roll_up()

    def _patiently(self, action: Callable[[], None]) -> None:
        """Do it, again after passing faults, for as long as `patience` allows."""
        deadline = self._monotonic() + self._patience
        wait = FIRST_WAIT
        while True:
            try:
                return action()
            except Retry as error:
                if self._monotonic() >= deadline:
                    raise self._unfinished(error) from error
            self._sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    def _unfinished(self, error: Retry) -> Retry:
        """An error that says that a record stayed unfinished, and why; a full disk keeps its name and its fix."""
        assert self._lost is not None
        message = f"{self._lost.message}: {error.message}"
        return StorageFull(message, error.fix) if isinstance(error, StorageFull) else Retry(message, self._lost.fix)

    def _create(self, record: Record, data: bytes) -> None:
        """Create record *n*, or find out whose it is. After an unknown outcome (`OutcomeUnknown` is a `Retry`)
        creating again is safe: of all attempts at most one succeeds, and the name's content says which."""
        path = record_path(record.number)
        try:
            self.storage.create(path, data)
        except AlreadyExists:
            self._require_ours(record, data)

    def _require_ours(self, record: Record, data: bytes) -> None:
        try:
            found = self.storage.get(record_path(record.number))
        except NotFound as error:
            # S3 refuses a conditional write beside another one that is under way, and may then keep neither.
            raise OutcomeUnknown(f"journal record {record.number} was refused as there, and is not") from error
        if found == data:
            return
        other = parse_record(found, record.number)
        if other.nonce == self.nonce:
            raise CorruptLog(f"journal record {record.number} was written by this process with other content")
        raise self._fenced(f"journal record {record.number} was written by another writer in epoch {other.epoch}")

    def _check_predecessor(self, record: Record) -> None:
        """A writer that slept beyond the retention of records could create *n* again where the real *n* was removed.
        Records go in order, so the real *n* cannot be gone while *n - 1* stands."""
        if record.number == 0:
            # Once record 0 has been removed, a roll-up stands for it.
            stands = next(iter(self.storage.list(ROLLUPS)), None) is None
        else:
            stands = self.storage.exists(record_path(record.number - 1))
        if stands:
            return
        self.storage.delete(record_path(record.number))
        raise self._fenced(f"the journal went on without this writer past record {record.number}")

    def check_owned(self) -> None:
        """`Fenced` when another writer has gone on after our last record."""
        try:
            number = RecordNumber(self.state.number + 1)
            other = parse_record(self.storage.get(record_path(number)), number)
        except NotFound:
            return
        if other.nonce != self.nonce:
            raise self._fenced(f"journal record {other.number} is of another writer, in epoch {other.epoch}")

    def _fenced(self, why: str) -> Fenced:
        self._lost = fenced = Fenced(why, ONE_WRITER)
        return fenced

    @property
    def _since_rollup(self) -> int:
        """Records since the newest one, by whatever process."""
        return self.state.number - self._rollups.number

    def finish(self) -> bool:
        """At the end of a run: a roll-up where it saves the next start some reading. Short runs never come to the
        many records after which a long one makes it. Whether one was made."""
        return self._lost is None and self._since_rollup >= ROLLUP_AT_END and self._roll_up()

    def _roll_up(self) -> bool:
        """Store the state. A roll-up is only a shortcut: one that fails is tried with a later record."""
        try:
            self._rollups.write(self.storage, self.state)
        except Retry:
            return False
        self._bytes_since_rollup = 0
        return True


def _folded(storage: Storage) -> JournalReader:
    """`NotFound` must mean one thing to who claims: that there is no change log."""
    try:
        return JournalReader.open(storage)
    except NotFound as error:
        raise _changed(error) from error


def _changed(error: NotFound) -> Retry:
    return Retry(f"the journal changed while it was claimed: {error.message}")
