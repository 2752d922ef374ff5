"""A follower's objects behind `sources.api.Subscription`: none in the source. It has a lease in the storage of the
change log that it reads, which lets that one's retention know what is still needed.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from tailrace.changelog.followers import FOLLOWERS, FollowerLease, leases, remove_lease, write_lease
from tailrace.changelog.journal import read_origin, read_record
from tailrace.changelog.records import Origin, SourceMoved
from tailrace.changelog.records.terms import RecordNumber, ResumePoint, TableSchema
from tailrace.changelog.state import LogState
from tailrace.contract import ownership
from tailrace.contract.places import StorageLocation
from tailrace.contract.resources import Replicator
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources import patterns
from tailrace.sources.api import Interrupted, Patience, RemovalProof, RemovalStep, Session, Source, StreamContext
from tailrace.sources.findings import ColumnSupport, Examination, Finding, TableSupport
from tailrace.sources.followed.comparison import Discrepancy, discrepancy
from tailrace.sources.followed.place import FOLLOWS, FollowedPlace
from tailrace.sources.followed.stream import LOST_FIX, FollowedStream, gone, opened
from tailrace.storage.access import StorageRefused
from tailrace.storage.probe import probe
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)
WAIT_SECONDS = 2.0
"""Between two looks for a change log that is not there yet."""


class FollowedSubscription:
    def __init__(self, source: Source, follow: StorageLocation, replicator: Replicator, root: str) -> None:
        """`follow`: the place of the other change log; `root`: of our own, for messages."""
        self._source = source
        self._follow, self._followed = follow, Storage.open(follow)
        self._replicator = replicator
        self._root = root

    # ---- starts ----

    def admit(
        self, origin: Origin, point: ResumePoint, renewing: bool, stopping: threading.Event | None = None
    ) -> None:
        there = self._there()
        assert there.origin is not None
        if not renewing:
            self._require_same_log(origin, there.origin)
            self._require_record(point, there)
        # What a change of the table may explain, the stream gives some time.
        self._refuse(there, lambda found: found.certain)

    def prepare(self, log_id: str, noted: Origin | None, patience: Patience) -> Origin:
        self._await_log(patience)
        there = self._there()
        self._refuse(there, lambda _: True)
        identity = _identity(there)
        owner, product = ownership.owner(self._replicator), self._replicator.spec.source.type
        return Origin(log_id=log_id, source=product, identity=identity, owner=owner)

    def begin(self, origin: Origin, patience: Patience) -> ResumePoint:
        there = self._there()
        place = FollowedPlace.behind(there)
        # From here on the records behind it stay. Dying behind it: the next start writes it again, under the same id.
        name, now = ownership.owner(self._replicator), int(time.time() * 1_000_000)
        lease = FollowerLease(log_id=origin.log_id, name=name, record=place.record, seq=place.seq, written_at=now)
        write_lease(self._followed, lease)
        return ResumePoint(there.position, place.model_dump_json())

    def renew(self, origin: Origin, patience: Patience) -> tuple[dict[str, str], ResumePoint]:
        return _identity(self._there()), self.begin(origin, patience)

    def failed_over(self, origin: Origin, point: ResumePoint) -> tuple[dict[str, str], ResumePoint] | None:
        """The next record there says that the source has moved."""
        try:
            record = read_record(self._followed, RecordNumber(FollowedPlace.of(point.source_state).record + 1))
        except NotFound:
            return None
        moved = next((event for event in record.events if isinstance(event, SourceMoved)), None)
        if moved is None:
            return None
        place = FollowedPlace.behind(record)
        return moved.identity | {FOLLOWS: origin.identity[FOLLOWS]}, ResumePoint(
            record.position, place.model_dump_json()
        )

    def resume(self, origin: Origin, point: ResumePoint) -> None:
        """Nothing to do: `admit` has asked for what must be there."""

    def stream(self, origin: Origin, context: StreamContext) -> FollowedStream:
        # The server that is read there by now: to get there, this log may still have to follow one move or several.
        there = self._there().origin
        assert there is not None
        source = self._source.bound_to(there)
        return FollowedStream(source, self._replicator, self._followed, origin.log_id, context)

    def _await_log(self, patience: Patience) -> None:
        """Both may have been started together. Nothing has been made yet, so dying here is safe."""
        waits = f"the change log at {self._followed.root}, which the Replicator that is followed has not begun"
        while read_origin(self._followed) is None:
            log.debug("waiting for %s", waits)
            patience.waits_for(waits)
            if patience.stopping.wait(WAIT_SECONDS):
                raise Interrupted("capture was stopped while it waited for the change log that is to be followed")
        patience.waits_for(None)

    # ---- checks ----

    def _there(self) -> LogState:
        """The state of the change log that is followed."""
        origin = read_origin(self._followed)
        if origin is None:
            raise SourceRefused(
                f"{self._followed.root} holds no change log that could be followed",
                "Start the Replicator that is to be followed: this one waits for it. Or correct follow.location (in"
                " Kubernetes, create another Replicator).",
            )
        if FOLLOWS in origin.identity:
            raise SourceRefused(
                f"the change log at {self._followed.root} follows another one",
                "Set follow.location to the storage.location of the Replicator that reads the source; in Kubernetes,"
                " create another Replicator.",
            )
        product = self._replicator.spec.source.type
        if origin.source != product:
            raise SourceRefused(
                f"the change log at {self._followed.root} is of a {origin.source} source, the manifest names {product}",
                "Name the source of the Replicator that is followed.",
            )
        return opened(self._followed).state

    def _require_same_log(self, origin: Origin, there: Origin) -> None:
        if origin.identity[FOLLOWS] != there.log_id:
            raise PositionLost(
                f"{self._followed.root} holds another change log than the one that was followed", LOST_FIX
            )

    def _require_record(self, point: ResumePoint, there: LogState) -> None:
        place = FollowedPlace.of(point.source_state)
        number = RecordNumber(place.record + 1)
        if number > there.number + 1:
            raise PositionLost(
                f"the change log at {self._followed.root} ends at record {there.number}, before record {number - 1},"
                " which was followed: it was restored to an older state",
                LOST_FIX,
            )
        try:
            found = [read_record(self._followed, number)] if number <= there.number else []
        except NotFound:
            raise gone(number, self._followed.root) from None
        with suppress(NotFound):  # retention need not keep what has been followed
            found.append(read_record(self._followed, place.record))
        if any(place.contradicts(record) for record in found):
            raise PositionLost(
                f"the change log at {self._followed.root} has another record {place.record} than the one that was"
                " followed: it was restored to an older state, and written on from there",
                LOST_FIX,
            )

    def _refuse(self, there: LogState, counts: Callable[[Discrepancy], bool]) -> None:
        for _, found in self._compared(there):
            if found is not None and counts(found):
                raise found.refusal

    def _compared(self, there: LogState) -> Iterator[tuple[TableSchema, Discrepancy | None]]:
        """The other log's tables that the manifest selects, and in what they are read differently here."""
        spec = self._replicator.spec
        assert there.origin is not None
        with self._source.bound_to(there.origin).session() as session:
            here = {own.schema.table_id: own for own in session.tables(spec.read_tables, spec.read_options)}
        for table in there.tables.values():
            name = table.schema.schema_name, table.schema.table_name
            if table.ended_at is not None or not patterns.selected(spec.read_tables, *name):
                continue
            own = here.get(table.table_id)
            yield table.schema, None if own is None else discrepancy(own, table.schema)

    # ---- for commands ----

    def examine(self, origin: Origin | None, renewing: bool) -> Examination:
        spec, there = self._replicator.spec, self._there()
        compared = list(self._compared(there))
        tables = [schema for schema, _ in compared]
        text = f"{there.owner}'s change log at {self._followed.root} is followed, which has record {there.number}"
        refusals = [found.refusal for _, found in compared if found is not None]
        findings = [Finding("follow", "ok", text), *(Finding("follow", "fail", e.message, e.fix) for e in refusals)]
        names = {(schema.schema_name, schema.table_name) for schema in tables}
        findings += self._writable()
        with self._source.session() as session:
            findings += _log_end(session)
            for own in session.tables(spec.read_tables, spec.read_options):
                if (own.schema.schema_name, own.schema.table_name) not in names:
                    what = f"{own.name} is not in the change log that is followed, and is not copied"
                    fix = "Include it in the Replicator that is followed, or exclude it here."
                    findings.append(Finding("tables", "warn", what, fix, table=own.name))
        supports = (
            TableSupport(schema, tuple(ColumnSupport(c.name, c.source_type, c.type, "YES") for c in schema.columns))
            for schema in tables
        )
        return Examination(tuple(findings), tuple(supports))

    def _writable(self) -> Iterator[Finding]:
        """The lease is the only file that a follower writes there. The probe's has no lease's name, so nobody there
        takes it for one."""
        place = f"{self._followed.root.rstrip('/')}/{FOLLOWERS}".rstrip("/")
        try:
            probe(self._follow.model_copy(update={"location": place}), exclusive=False)
        except (StorageRefused, Retry) as error:
            fix = f"Grant the right to write and delete below {place}: the follower keeps its place there. {error.fix}"
            yield Finding("follow", "fail", f"{place} cannot be written: {error.message}", fix)

    def check(self, origin: Origin, point: Callable[[], ResumePoint], renewing: bool) -> None:
        self.admit(origin, point(), renewing)

    def check_free(self, noted: Origin | None) -> None:
        """Nothing is created in the source."""

    def retained_bytes(self, origin: Origin) -> None:
        """The source keeps nothing for a follower."""

    def remove(self, proof: Callable[[], RemovalProof]) -> Iterator[RemovalStep]:
        now = proof()
        what = f"lease in the change log at {self._followed.root}"
        if now.origin is None or now.origin.log_id not in {lease.log_id for lease in leases(self._followed)}:
            yield RemovalStep(what, "absent")
        elif now.kept is not None:
            yield RemovalStep(what, "kept", now.kept)
        else:
            remove_lease(self._followed, now.origin.log_id)
            yield RemovalStep(what, "dropped")


def _log_end(session: Session) -> Iterator[Finding]:
    """The stream asks for it every second: in MySQL and MariaDB it needs a right."""
    try:
        session.log_end()
    except SourceRefused as error:
        yield Finding("rights", "fail", error.message, error.fix)


def _identity(there: LogState) -> dict[str, str]:
    """The source's, as the other log knows it, and that log."""
    assert there.origin is not None
    return there.origin.identity | {FOLLOWS: there.origin.log_id}
