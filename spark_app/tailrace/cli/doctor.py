"""`tailrace doctor`: what stands in the way of a start, without changing source or target.

Looks at the source through its preflight, at the change log through the checks of a start, and at storage and target by
writing, reading and removing one small file.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailrace.capture.admission import check_manifest
from tailrace.capture.renewal import Renewal
from tailrace.changelog.journal import JournalReader
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.errors import CorruptLog, Retry, Stop, TailraceError
from tailrace.sources.patterns import idle
from tailrace.sources.postgresql import admission, preflight
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.connect import Connection, PgConfig, connect
from tailrace.sources.postgresql.facts import observe
from tailrace.sources.postgresql.first_start import FirstStart
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.preflight import ColumnSupport
from tailrace.storage.store import Storage
from tailrace.targets import places

LOG = "change log"
REFUSED = 10
"""Exit code for whatever a start, or a table, would be refused with."""


@dataclass(frozen=True)
class Line:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    message: str
    fix: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        text = f"{self.level:4} {self.subject}: {self.message}"
        return text + (f"\n     fix: {self.fix}" if self.fix else "")


@dataclass(frozen=True)
class Report:
    lines: tuple[Line, ...]
    columns: tuple[ColumnSupport, ...] = ()

    @property
    def exit_code(self) -> int:
        """Never 0 beside a line that says `fail`: a table that cannot be copied is no readiness either."""
        return max((line.exit_code or REFUSED for line in self.lines if line.level == "fail"), default=0)


def examine(replicator: Replicator, secrets: Path | None) -> Report:
    """Source first, then storage and target."""
    lines: list[Line] = []
    columns: Sequence[ColumnSupport] = ()
    try:
        found, columns = _source(replicator, secrets)
        lines += found
    except (Stop, Retry) as error:
        lines.append(_failure("source", error))
    try:
        places.require_apart(replicator.spec)
    except TailraceError as error:
        lines.append(_failure("places", error))
    for subject, config in (("storage", replicator.spec.storage), ("target", replicator.spec.target)):
        lines += _place(subject, config)
    return Report(tuple(lines), tuple(columns))


def _source(replicator: Replicator, secrets: Path | None) -> tuple[list[Line], list[ColumnSupport]]:
    spec = replicator.spec
    log = _Log.read(replicator)
    with connect(PgConfig.of(spec.source, "tailrace doctor", secrets)) as connection:
        tables = discover(connection, spec.tables, spec.options)
        facts = observe(connection, spec.source, log.names.made, tables)
        findings = [f for f in preflight.check(facts) if not (f.name == preflight.SLOT_LOG and log.replaces_slot)]
        lines = [Line(f.level, f.table or f.name, f.message, f.fix) for f in findings]
        try:
            lines += _change_log(replicator, log, connection)
        except (Stop, Retry) as error:
            lines.append(_failure(LOG, error))
    if not tables:
        asked = ", ".join(spec.tables.include)
        lines.append(Line("fail", "tables", f"no table matches {asked}", "Correct tables.include."))
    names = [(table.schema_name, table.table_name) for table in tables]
    fix = "Ignore this if the tables will be created later."
    lines += [Line("warn", "patterns", text, fix) for text in idle(spec.tables, spec.options, names) if tables]
    return lines, [column for table in tables for column in preflight.columns(table)]


@dataclass(frozen=True)
class _Log:
    """The change log as a start would find it."""

    names: Names
    reader: JournalReader | None = None
    """None: the storage or the journal cannot be read."""
    left: FirstStart | None = None
    asked: Renewal | None = None
    corrupt: CorruptLog | None = None

    @staticmethod
    def read(replicator: Replicator) -> "_Log":
        try:
            storage = Storage.open(replicator.spec.storage, os.environ)
            asked, reader = Renewal.read(storage), JournalReader.open(storage)
            if reader.state.origin is not None:
                return _Log(Names.of_log(replicator, reader.state.origin), reader, asked=asked)
            left = FirstStart.read(storage)
            return _Log(Names.of(replicator, (left and left.log_id) or ""), reader, left)
        except CorruptLog as error:
            return _Log(Names.of(replicator), corrupt=error)
        except TailraceError:  # the probe of the storage tells it
            return _Log(Names.of(replicator))

    @property
    def renewing(self) -> bool:
        return self.asked is not None and self.reader is not None and not self.reader.state.has_done(self.asked.id)

    @property
    def replaces_slot(self) -> bool:
        return self.renewing and self.names.slot_is_ours


def _change_log(replicator: Replicator, log: _Log, connection: Connection) -> Iterator[Line]:
    """What a start asks of the change log before it takes it over, or of the source before it makes one."""
    if log.corrupt is not None:
        raise log.corrupt
    if log.reader is None:
        return
    state, root = log.reader.state, log.reader.storage.root
    owner = log.left.owner if state.origin is None and log.left is not None else state.owner
    if not state.released:
        check_manifest(replicator, root, owner)
        if not ownership.goes_to(owner, replicator):
            message = f"{root} belongs to {owner!r}: that Replicator in Kubernetes can start, `tailrace run` is refused"
            yield Line("warn", LOG, message)
    if state.origin is None:
        admission.check_free(replicator, root, log.names, log.left, connection)
        return
    # In this order: a capture at work records a position before it lets the slot move there.
    slot = slots.find_slot(connection, log.names.slot)
    while log.reader.poll():
        pass
    state = log.reader.state
    admission.check_source(replicator, state, connection, log.renewing)
    if log.renewing:
        yield Line("warn", LOG, "the next start creates a new slot and reads every table again (`resync --all`)")
        return
    admission.check_slot(slot, log.names.slot, replicator.spec.source.database, state.position)
    yield Line("ok", LOG, f"{root} continues after record {state.number}")


def _place(subject: str, config: StorageConfig) -> Iterator[Line]:
    try:
        same = places.examine(config)
    except TailraceError as error:
        yield _failure(subject, error)
        return
    if same:
        yield Line("ok", subject, f"{config.location} can be written and read")
    else:
        yield Line(
            "fail", subject, f"{config.location} returns other bytes than were written", "Check the storage service."
        )


def _failure(subject: str, error: TailraceError) -> Line:
    return Line("fail", subject, f"{error.name}: {error.message}", error.fix, error.exit_code)
