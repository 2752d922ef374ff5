"""`tailrace doctor`: the obstacles to a start, found without changing source or target.

Looks at the source through its preflight, at the change log through the checks of a start, and at storage and target by
writing, reading and removing one small file; and whether there is a Java for Spark.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from typing_extensions import override

from tailrace.batch.applied import Generation
from tailrace.batch.slice import cut
from tailrace.capture.admission import check_manifest, check_product
from tailrace.capture.renewal import Renewal
from tailrace.changelog import first_start
from tailrace.changelog.followers import LEASE_AGE, LEASE_DAYS, LeaseFile, lease_files
from tailrace.changelog.history import stored
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.logged import place_of
from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import ResumePoint, TableSchema
from tailrace.changelog.state import LogState
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.contract.status import moment
from tailrace.driver.telling.lineage import configuration
from tailrace.errors import CorruptLog, CutOver, LogTrimmed, OutcomeUnknown, Retry, Stop, TableStop, TailraceError
from tailrace.logs import visible
from tailrace.places import Places
from tailrace.selection import masks
from tailrace.sources import removals
from tailrace.sources.api import Subscription
from tailrace.sources.findings import Finding, TableSupport
from tailrace.sources.patterns import idle
from tailrace.storage.store import Storage
from tailrace.targets.api import Target

LOG = "change log"
REFUSED = 10
"""Exit code of a finding that would stop a start, or a table."""


@dataclass(frozen=True)
class Line:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    message: str
    fix: str = ""
    exit_code: int = 0
    """The exit code with which a start would end after this failure."""

    def __post_init__(self) -> None:
        if self.level == "fail" and not self.exit_code:
            object.__setattr__(self, "exit_code", REFUSED)

    @override
    def __str__(self) -> str:
        text = visible(f"{self.level:4} {self.subject}: {self.message}")
        return text + (f"\n     fix: {visible(self.fix)}" if self.fix else "")


@dataclass(frozen=True)
class Report:
    lines: tuple[Line, ...]
    tables: tuple[TableSupport, ...] = ()

    @property
    def failed(self) -> frozenset[str]:
        """Subjects, tables among them."""
        return frozenset(line.subject for line in self.lines if line.level == "fail")

    @property
    def exit_code(self) -> int:
        """Never 0 beside a line that says `fail`: a table that cannot be copied is no readiness either."""
        return max((line.exit_code for line in self.lines), default=0)


def examine(replicator: Replicator, places: Places) -> Report:
    """Source first, then storage and target. After a cutover none of them matters."""
    lines: list[Line] = []
    tables: Sequence[TableSupport] = ()
    log = _Log.read(places)
    if _is_cut_over(places, log):
        return Report((_failure(LOG, CutOver("a cutover has ended the replication into these tables")),))
    try:
        found, tables = _source(replicator, places, log)
        lines += found
    except (Stop, Retry) as error:
        lines.append(_failure("source", error))
    try:
        places.require_apart()
    except TailraceError as error:
        lines.append(_failure("places", error))
    lines += [*_place(places, "storage"), *_place(places, "target")]
    if lines[-1].level == "ok":
        lines += _in_the_way(places, tables, log)
    lines += [*_lineage(replicator, places), *_java()]
    return Report(tuple(lines), tuple(tables))


def _is_cut_over(places: Places, log: "_Log") -> bool:
    """A target that does not answer is told as such later."""
    try:
        handover = places.target.handover()
        return log.origin is not None and handover is not None and handover.done(log.origin.log_id) is not None
    except TailraceError:
        return False


def _source(replicator: Replicator, places: Places, log: "_Log") -> tuple[list[Line], Sequence[TableSupport]]:
    spec = replicator.spec
    masks.configure(spec, places.secrets)
    with places.source.subscription(replicator, log.root) as subscription:
        found = subscription.examine(log.origin, log.renewing)
        unmatched = next((f for f in found.findings if f.name == "tables" and not found.tables), None)
        named = list(in_target(places.target, [table.schema for table in found.tables if not table.stopped]))
        refused = sum(line.level == "fail" for line in named)
        lines = [_line(f, refused) for f in found.findings if f is not unmatched] + named
        try:
            lines += _change_log(replicator, log, subscription)
        except (Stop, Retry) as error:
            lines.append(_failure(LOG, error))
    if not found.tables:
        lines.append(_unmatched(spec.tables.include, unmatched))
    fix = (
        "Ignore this if the tables will be created later. If they exist, correct the pattern, or grant the right on"
        " them: some servers show no others."
    )
    names = [(table.schema.schema_name, table.schema.table_name) for table in found.tables]
    unmet = idle(spec.tables, spec.options, names) if names else ()
    told = [text.partition(" matches no table")[0] for text in found.of_other_case]
    lines += [
        Line("warn", "patterns", text, "Write the pattern in the catalog's case.") for text in found.of_other_case
    ]
    lines += [
        Line("warn", "patterns", text, fix) for text in unmet if text.partition(" matches no table")[0] not in told
    ]
    return lines, found.tables


def _line(finding: Finding, refused: int) -> Line:
    """The source counts the tables that it can give, and does not know the target."""
    message = finding.message
    if finding.name == "tables" and refused:
        message += f"; the target refuses {refused} of them"
    return Line(finding.level, finding.table or finding.name, message, finding.fix)


def _unmatched(patterns: Sequence[str], unmatched: Finding | None) -> Line:
    """The line for no table at all: the source's finding knows its rules, but not the patterns."""
    fix = unmatched.fix if unmatched is not None else "Correct tables.include."
    return Line("fail", "tables", f"no table matches {', '.join(patterns)}", fix)


def in_target(target: Target, schemas: Sequence[TableSchema]) -> Iterator[Line]:
    """Tables that the source can give, and the target cannot hold, or not under the source's names of columns."""
    for schema in map(stored, schemas):
        try:
            shown = target.shown(schema)
        except TableStop as stop:
            yield Line("fail", schema.name, stop.message, stop.fix)
            continue
        pairs = zip(schema.columns, shown.columns, strict=True)
        others = [f"{column.name!r} {other.name!r}" for column, other in pairs if column.name != other.name]
        if others:
            text = (
                f"the target calls column {', '.join(others)}: the source's name is reserved there,"
                " has a character that names cannot have, or is too similar to another column's"
            )
            fix = "Rename it in the source, if that matters."
            yield Line("warn", schema.name, text, fix)


@dataclass(frozen=True)
class _Log:
    """The change log as a start would find it."""

    root: str
    reader: JournalReader | None = None
    """None: the storage or the journal cannot be read."""
    noted: Origin | None = None
    """The origin that an interrupted first start noted."""
    asked: Renewal | None = None
    corrupt: CorruptLog | None = None

    @staticmethod
    def read(places: Places) -> "_Log":
        root = places.spec.storage.location
        try:
            storage = places.storage
            root = storage.root
            asked, reader = Renewal.read(storage), JournalReader.open(storage)
            if reader.state.origin is not None:
                return _Log(root, reader, asked=asked)
            return _Log(root, reader, first_start.read(storage))
        except CorruptLog as error:
            return _Log(root, corrupt=error)
        except TailraceError:  # the probe of the storage tells it
            return _Log(root)

    @property
    def origin(self) -> Origin | None:
        known = None if self.reader is None else self.reader.state.origin
        return known if known is not None else self.noted

    @property
    def renewing(self) -> bool:
        return self.asked is not None and self.reader is not None and not self.reader.state.has_done(self.asked.id)

    def resume_point(self) -> ResumePoint:
        return self.newest().resume_point

    def newest(self) -> LogState:
        """The state after all records that there are."""
        assert self.reader is not None
        while self.reader.poll():
            pass
        return self.reader.state


def _change_log(replicator: Replicator, log: _Log, subscription: Subscription) -> Iterator[Line]:
    """Checks what a start checks in the change log before it continues it, or in the source before it creates one."""
    if log.corrupt is not None:
        raise log.corrupt
    if log.reader is None:
        return
    state, root = log.reader.state, log.root
    owner = log.noted.owner if log.noted is not None else state.owner
    if owner and not state.released:
        check_manifest(replicator, root, owner)
        if not ownership.goes_to(owner, replicator):
            message = f"{root} belongs to {owner!r}: that Replicator in Kubernetes can start, `tailrace run` is refused"
            yield Line("warn", LOG, message)
    if state.origin is None:
        subscription.check_free(log.noted)
        return
    check_product(replicator, state.origin)
    removals.require_confirmed(replicator.spec.tables, removals.of_log(state))
    subscription.check(state.origin, log.resume_point, log.renewing)
    if log.renewing:
        yield Line("warn", LOG, "the next start begins the stream again and reads every table again (`resync --all`)")
        return
    yield Line("ok", LOG, f"{root} continues after record {log.reader.state.number}")
    yield from _followers(log.reader.storage)


def _followers(storage: Storage) -> Iterator[Line]:
    """Those for which the log is no longer kept, or is kept although they do not read it."""
    now = int(time.time() * 1_000_000)
    for file in lease_files(storage):
        if (said := _of_follower(file, now)) is not None:
            yield Line("warn", LOG, f"{file.name} {said}", f"Start it, or if it is gone, delete {file.uri}.")


def _of_follower(file: LeaseFile, now: int) -> str | None:
    if file.is_old(now):
        return f"follows this log, has not read it for {LEASE_DAYS} days, and nothing is kept for it"
    if file.lease is None:
        return "has a place in this log that is not known, so nothing is removed"
    if not file.is_silent(now):
        return None
    since, until = (moment(at / 1_000_000) for at in (file.changed, file.changed + LEASE_AGE))
    return f"follows this log, and has not read it since {since}: what it needs is kept until {until}"


def _place(places: Places, subject: Literal["storage", "target"]) -> Iterator[Line]:
    place = places.spec.storage.location if subject == "storage" else places.target.place
    try:
        same = places.examine(subject)
    except TailraceError as error:
        yield _failure(subject, error)
        return
    if same:
        a_database = subject == "target" and places.target.folder is None
        works = "answers, and the user may create schemas" if a_database else "can be written and read"
        yield Line("ok", subject, f"{place} {works}")
    else:
        yield Line("fail", subject, f"{place} returns other bytes than were written", "Check the storage service.")


def _in_the_way(places: Places, tables: Sequence[TableSupport], log: "_Log") -> Iterator[Line]:
    """Obstacles in the target that only a look into it shows."""
    schemas = [stored(table.schema) for table in tables if not table.stopped]
    try:
        places.require_other_database()
        found = places.target.obstacles(schemas, None if log.origin is None else log.origin.log_id)
        lost = [*_lost_copies(places.target, log), *_lacked(places, schemas)]
    except TailraceError as error:
        yield _failure("target", error)
        return
    for one in found:
        yield Line(one.level, one.table or "target", one.message, one.fix)
    yield from lost


def _lost_copies(target: Target, log: "_Log") -> Iterator[Line]:
    """Tables that the target no longer has, and that the change log no longer has from their beginning on: the target
    was emptied, or another one has taken its place."""
    if log.reader is None or log.reader.state.origin is None or log.renewing:
        return
    state = log.newest()
    captured = {place_of(table): table for table in state.tables.values() if not table.removed}
    for name in target.lacking(captured, log.reader.state.origin.log_id):
        table = captured[name]
        generation = Generation(table.generation, table.begin_seq)
        applied = generation.begin(table.schemas[0].table, log.reader.state.origin.log_id)
        try:
            cut(state, table.table_id, applied, state.number)
        except LogTrimmed as stop:
            message = f"the target has no copy of this table, which was copied before: {stop.message}"
            yield Line("fail", table.schema.name, message, stop.fix)


def _lacked(places: Places, schemas: Sequence[TableSchema]) -> Iterator[Line]:
    """Defaults, sequences and indexes of the source that copies do not have; a history's rows do not fit into them."""
    schemas = [schema for schema in schemas if schema.history is None]
    if places.spec.target.type != places.spec.source.type:
        return
    with places.source.session() as session:
        extras = session.extras([(schema.schema_name, schema.table_name) for schema in schemas])
    for name, statements in places.target.lacked(extras, schemas).items():
        message = f"the copy lacks {len(statements)} defaults, sequences, generated columns and indexes of the source"
        fix = f"Ignore this unless the copy needs them; otherwise run `{'; '.join(statements)}`."
        yield Line("warn", name, message, fix)


def _lineage(replicator: Replicator, places: Places) -> Iterator[Line]:
    """The configuration alone: whether the receiver answers, the status tells."""
    spec = replicator.spec.lineage
    if spec is None:
        return
    try:
        kind = configuration.check(spec, places.secrets)
    except TailraceError as error:
        yield _failure("lineage", error)
        return
    yield Line("ok", "lineage", f"events are sent by the transport {kind}")


def _java() -> Iterator[Line]:
    """The Java that Spark would find. Only a warning: doctor may run on a machine where the Replicator never will."""
    home = os.environ.get("JAVA_HOME")
    if Path(home, "bin", "java").is_file() if home else shutil.which("java"):
        return
    message = "there is no java in JAVA_HOME or on the PATH, so `tailrace run` cannot start Spark on this machine"
    yield Line("warn", "java", message, "Install Java 17, or set JAVA_HOME.")


def _failure(subject: str, error: TailraceError) -> Line:
    # What may pass has no name that says more: "Retry" would read as an instruction.
    named = type(error) not in (Retry, OutcomeUnknown)
    message = f"{error.name}: {error.message}" if named else error.message
    return Line("fail", subject, message, error.fix, error.exit_code)
