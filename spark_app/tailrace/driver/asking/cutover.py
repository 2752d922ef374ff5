"""`tailrace cutover`: the copies become the tables that programs write to.

    checks ─> verification ─> quiet source ─> everything is applied ─> counters ─> the copies are handed over
    nothing is changed                                                 moved        the driver's work has ended

Before the last step nothing has happened that another attempt would not do again, so a killed command is run again.
The last step is one transaction of the target, in which the report is kept: after it every attempt prints that report,
and no driver with this change log, started by whatever controller, can write into the tables.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tailrace.batch.slice import last_record
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.logged import TableLog, place_of
from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.changelog.state import LogState
from tailrace.contract.driver import CutoverReport, NextNumber
from tailrace.contract.resources import Replicator
from tailrace.contract.status import Status, TableStatus
from tailrace.databases.counters import Counter
from tailrace.driver.asking import doctor
from tailrace.errors import Retry, TailraceError
from tailrace.places import Places
from tailrace.seams import seam
from tailrace.sources.api import Source
from tailrace.sources.patterns import options_of
from tailrace.targets.api import Handover

PAUSE = 0.2
"""Seconds between two looks at what is waited for."""
SETTLED = 2.0
"""Seconds without a change after which a source that is not read-only counts as quiet."""
COMPARISONS = 3
"""A row that is changed at the same time may have to be compared again."""
MOST_LAG = 60.0
"""Seconds; with a longer lag the wait for the last changes would be long, and programs would stand still."""
SMALL = 1_000_000
"""Rows of a table that is compared once more while programs stand still."""


class CutoverRefused(TailraceError):
    """Something is in the way of a cutover; neither source nor target was changed."""


class StillWritten(CutoverRefused):
    """The source of a cutover is not quiet."""


class RunningDriver(Protocol):
    """The running driver, as the command line speaks with it."""

    def status(self) -> Status: ...

    def verify(self, tables: Sequence[str]) -> None:
        """Compare these tables; raises what `tailrace verify` does if they are not equal."""


@dataclass(frozen=True)
class CutoverOptions:
    """The options of the command."""

    timeout: float
    """Seconds for which the source may take to become quiet, and the target to hold everything."""
    stopped: bool = False
    """The user says that no program writes to the source."""
    check: bool = False
    """End before the programs have to be stopped."""
    accept_missing: bool = False
    """Continue although the copies lack columns, defaults, sequences or indexes."""
    verified_within: float = 86400.0
    """Seconds; the age of a verification that counts."""
    declared: bool = False
    """These are of a manifest, which nobody runs again and which has no command line."""

    def again(self, first: str) -> str:
        """`first`, and what makes the next attempt."""
        return f"{first}." if self.declared else f"{first}, then run it again."


@dataclass
class Cutover:
    replicator: Replicator
    places: Places
    driver: RunningDriver
    options: CutoverOptions
    say: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _told: str = field(default="", init=False)

    def run(self) -> CutoverReport | None:
        """None: only the checks were wanted, and nothing is in the way."""
        handover = self._handover()
        reader = JournalReader.open(self.places.storage)
        origin = reader.state.origin
        if origin is None:
            raise CutoverRefused("there is no change log: nothing was copied", "Start it with `tailrace run`.")
        done = handover.done(origin.log_id)
        if done is not None:
            handover.tidy(origin.log_id)
            self.say("this cutover was completed before; nothing is changed")
            return CutoverReport.model_validate_json(done)
        source = self.places.source.bound_to(origin)
        tables = _captured(reader)
        self._check(handover, source, tables)
        self._verify(self.options.verified_within)
        if self.options.check:
            return None
        record = self._settled(source, reader, lambda: self._once_more(handover, source, reader))
        return self._hand_over(handover, source, reader, record)

    def _handover(self) -> Handover:
        spec = self.replicator.spec
        if spec.follow is not None:
            what = "this Replicator follows another one, whose reader of the source has to stop last"
            raise CutoverRefused(what, "Run the cutover from the Replicator that reads the source.")
        handover = self.places.target.handover() if spec.target.is_database else None
        if handover is None:
            what = f"the target is {spec.target.type}: programs write to databases"
            raise CutoverRefused(what, "Copy into a database (docs/database-targets.md) to move programs there.")
        if spec.target.type != spec.source.type:
            what = f"the source is {spec.source.type}, the target {spec.target.type}"
            raise CutoverRefused(what, "A cutover moves programs between servers of one product.")
        return handover

    # ---- checks ----

    def _check(self, handover: Handover, source: Source, tables: Sequence[TableLog]) -> None:
        found = [*self._not_ready(self.driver.status()), *self._not_whole(tables)]
        if not found:
            report = doctor.examine(self.replicator, self.places)
            found += [(f"{one.subject}: {one.message}", one.fix) for one in report.lines if one.level == "fail"]
            found += _not_there([table.schema for table in report.tables], tables)
            lost = [
                (f"{table.name}: column {column.column!r} is not copied: {column.reason}", column.suggestion)
                for table in report.tables
                for column in table.columns
                if column.support == "NO"
            ]
            missing = [*lost, *self._lacked(source, tables), *handover.lacking(self._counters(source, tables))]
            for message, fix in missing if self.options.accept_missing else ():
                self.say(f"accepted: {message}. Fix: {fix}")
            found += [] if self.options.accept_missing else missing
        for message, fix in found:
            self.say(f"in the way: {message}. Fix: {fix}")
        if found:
            more = (
                f" (and {len(found) - 1} more, {'in the log' if self.options.declared else 'printed above'})"
                if len(found) > 1
                else ""
            )
            raise CutoverRefused(f"{found[0][0]}{more}", found[0][1])

    def _not_ready(self, status: Status) -> Iterator[tuple[str, str]]:
        wait = self.options.again("Wait until `tailrace status` shows all tables replicating")
        if status.state != "Running":
            yield f"the Replicator is {status.state}: {status.message}", wait
        if status.apply.suspended:
            yield "writing to the target is suspended", "Set apply.suspend to false."
        if not status.tables:
            yield "no table is copied", "Correct tables.include."
        for table in status.tables:
            why = _not_level(table)
            if why is not None:
                fault = table.fault
                yield f"table {table.name} {why}", fault.fix if fault is not None and fault.fix else wait
        lag = max((table.lag_seconds or 0.0 for table in status.tables), default=0.0)
        if lag > MOST_LAG:
            yield f"the copies are {lag:.0f} s behind, and programs would have to wait for that", wait

    def _not_whole(self, tables: Sequence[TableLog]) -> Iterator[tuple[str, str]]:
        """Copies that are not meant to be equal."""
        for table in tables:
            name = table.schema.name
            option = options_of(self.replicator.spec.options, table.schema.schema_name, table.schema.table_name)
            if option is None:
                continue
            changing = {
                "where": option.where, "mask": option.mask, "as": option.as_, "asText": option.as_text,
                "columns": option.columns, "history": option.history != "Current",
            }  # fmt: skip
            for word in (word for word, given in changing.items() if given):
                yield f"the copy of {name} is another than the table: options[].{word}", "Remove it."

    def _lacked(self, source: Source, tables: Sequence[TableLog]) -> Iterator[tuple[str, str]]:
        schemas = [table.schema for table in tables]
        with source.session() as session:
            extras = session.extras([(schema.schema_name, schema.table_name) for schema in schemas])
        for name, statements in self.places.target.lacked(extras, schemas).items():
            what = "defaults, sequences, generated columns and indexes"
            message = f"the copy of {name} lacks {len(statements)} {what} of the source"
            accept = "set cutover.acceptMissing: true" if self.options.declared else "add --accept-missing"
            yield message, f"Run `{'; '.join(statements)}`, or {accept}."

    def _counters(self, source: Source, tables: Sequence[TableLog]) -> list[Counter]:
        """Those of the source, under the names that its tables had first."""
        first = {(t.schema.schema_name, t.schema.table_name): place_of(t) for t in tables}
        with source.session() as session:
            found = session.counters(first)
        return [
            replace(
                counter,
                name=first.get(counter.name, counter.name),
                column=counter.column and (first[counter.column[0]], counter.column[1]),
            )
            for counter in found
        ]

    def _once_more(self, handover: Handover, source: Source, reader: JournalReader) -> None:
        """Looks at what was created while the programs still ran: their stop may have taken days to come."""
        _newest(reader)
        self._check(handover, source, _captured(reader))
        self._verify(math.inf)

    def _verify(self, within: float) -> None:
        """Compares the tables that were not compared within so many seconds. Most of them before the programs are
        stopped: it may take long."""
        for _ in range(COMPARISONS):
            stale = [table.name for table in self.driver.status().tables if not self._is_verified(table, within)]
            if not stale:
                return
            self.say(f"verifying {len(stale)} tables")
            self.driver.verify(stale)
            self.sleep(SETTLED)  # the status follows
        what = f"rows of {stale[0]} were changed whenever they were compared, so they are not known to be equal"
        raise CutoverRefused(what, self.options.again("Stop the programs that write to the source"))

    def _is_verified(self, table: TableStatus, within: float) -> bool:
        last = table.verified
        if last is None or last.at < self.clock() - within:
            return False
        return not last.compared.differences and not last.compared.undecided

    # ---- the quiet source ----

    def _settled(self, source: Source, reader: JournalReader, look: Callable[[], None]) -> RecordNumber:
        """Wait until nothing can come any more; returns the record up to which the target holds everything. `look`:
        called whenever it does, before the last question whether something came."""
        until, since = self.monotonic() + self.options.timeout, None
        held: RecordNumber | None = None
        self.say("everything is ready: stop the programs that write to the source, and make it read-only")
        while True:
            with source.session() as session:
                writers = session.writers(since, self.options.stopped)
                end = session.log_end()
            since = writers.since
            if writers.obstacles:
                held = None
                message, fix = writers.obstacles[0]
                if since is None and not (self.options.stopped or self.options.declared):
                    fix += " Or add --writers-stopped if no program can write."
                self._wait(until, StillWritten, message, fix)
                continue
            if held is None:
                self._look_again()
            while (state := _newest(reader)).position < end and not _has_more(reader, held):
                self._wait(until, CutoverRefused, "capture has not reached the end of the source's log", "Try again.")
            if held is not None and not _has_more(reader, held):
                return held
            if held is not None:
                fix = "Stop the program that writes to it."
                self._wait(until, StillWritten, "the source is still written to: changes came", fix)
            held = state.number
            self._wait_applied(held, until)
            look()
            if self.options.stopped:
                self.sleep(SETTLED)

    def _wait(self, until: float, error: type[CutoverRefused], message: str, fix: str) -> None:
        if self.monotonic() > until:
            raise error(f"{message} (waited for {self.options.timeout:.0f} s)", fix)
        if message != self._told:
            self._told = message
            self.say(f"waiting: {message}. Fix: {fix}")
        self.sleep(PAUSE)

    def _look_again(self) -> None:
        """Compares the smallest table: a last proof, for which capture goes to the end of the log at once."""
        sizes = [(t.verified.compared.rows, t.name) for t in self.driver.status().tables if t.verified is not None]
        if sizes and min(sizes)[0] <= SMALL:
            self.driver.verify([min(sizes)[1]])

    def _wait_applied(self, record: RecordNumber, until: float) -> None:
        while True:
            tables = self.driver.status().tables
            behind = [t.name for t in tables if t.applied_record < record or _not_level(t) is not None]
            if not behind:
                return
            what = f"{len(behind)} tables do not hold all of record {record} yet, such as {behind[0]}"
            self._wait(until, CutoverRefused, what, self.options.again("Look at `tailrace status`"))

    # ---- the end ----

    def _hand_over(
        self, handover: Handover, source: Source, reader: JournalReader, record: RecordNumber
    ) -> CutoverReport:
        tables = _captured(reader)
        seam("cutover.quiet")
        counters = handover.advance(self._counters(source, tables))
        seam("cutover.counters")
        origin = reader.state.origin
        assert origin is not None
        report = CutoverReport(
            at=self.clock(),
            position=source.text(reader.state.position),
            record=record,
            tables=tuple(sorted(table.schema.name for table in tables)),
            counters=tuple(NextNumber(name=counter.shown, next=counter.next) for counter in counters),
            source=self.places.source.place,
            target=self.places.target.place,
        )
        self._finish(handover, origin, report)
        self.say(f"done: programs may write to {report.target}")
        seam("cutover.done")
        return report

    def _finish(self, handover: Handover, origin: Origin, report: CutoverReport) -> None:
        try:
            handover.finish(origin.log_id, report.model_dump_json(by_alias=True))
        except Retry as error:
            if error.away:
                raise
            raise CutoverRefused(error.message, "" if self.options.declared else "Run it again.") from error


def _not_there(wanted: Sequence[TableSchema], tables: Sequence[TableLog]) -> Iterator[tuple[str, str]]:
    """Tables and columns of the source that are so new that no copy has them."""
    copied = {table.schema.table_id: {column.name for column in table.schema.columns} for table in tables}
    for schema in wanted:
        if schema.table_id not in copied:
            yield f"table {schema.name} of the source is not copied yet", "Wait until it is."
            continue
        for column in schema.columns:
            if column.name not in copied[schema.table_id]:
                fix = "Make the source writable again and change a row of the table: its columns are seen then."
                yield f"column {column.name!r} of {schema.name} is not in the copy yet", fix


def _newest(reader: JournalReader) -> LogState:
    while reader.poll():
        pass
    return reader.state


def _has_more(reader: JournalReader, record: RecordNumber | None) -> bool:
    """True if a table has changes behind the record; None: there is none to compare with."""
    return record is not None and any(last_record(table) > record for table in _captured(reader))


def _captured(reader: JournalReader) -> list[TableLog]:
    return [table for table in reader.state.tables.values() if not table.removed]


def _not_level(table: TableStatus) -> str | None:
    if table.fault is not None:
        return f"has a fault: {table.fault.name}: {table.fault.message}"
    if table.state != "REPLICATING" or table.read is False or table.replacing:
        return f"is {table.state}" if table.state != "REPLICATING" else "has not been read completely"
    if table.holes:
        return f"withholds {table.holes} rows"
    if table.converging_since is not None:
        return "has rows that foreign keys changed below the source's log, and that are still to be read again"
    if table.nulled:
        return "has values that became NULL"
    return None
