"""PostgreSQL's objects of a change log, behind `sources.api.Subscription`: a slot, a publication, and the server's
identity.

On capture's SQL connection, and on those of `tailrace doctor` and `tailrace drop`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position, ResumePoint
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import Connection, PgConfig
from tailrace.sources.api import Patience, RemovalProof, RemovalStep, StreamContext
from tailrace.sources.findings import Examination
from tailrace.sources.postgresql import admission, preflight, publication, removal
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.catalog import discover, of_other_case
from tailrace.sources.postgresql.facts import observe
from tailrace.sources.postgresql.log import start
from tailrace.sources.postgresql.log.connection import release_slot
from tailrace.sources.postgresql.log.stream import PgStream
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.names import Names
from tailrace.sources.postgresql.sizes import sizes
from tailrace.sources.postgresql.support import describe

log = logging.getLogger(__name__)


class PgSubscription:
    def __init__(self, config: PgConfig, connection: Connection, replicator: Replicator, root: str) -> None:
        """`root`: of the change log, for messages."""
        self._config = config
        self._connection = connection
        self._replicator = replicator
        self._root = root
        self._to_publish: list[PgTable] = []
        """The tables that `prepare` accepted."""

    def admit(
        self, origin: Origin, point: ResumePoint, renewing: bool, stopping: threading.Event | None = None
    ) -> None:
        # The source is asked after the journal was read: a writer still at work takes both forward.
        server = slots.identify(self._connection)
        admission.check_origin(Names.of_log(self._replicator, origin), origin, server)
        if not renewing:
            admission.check_position(origin, server, point.position)

    def prepare(self, log_id: str, noted: Origin | None, patience: Patience) -> Origin:
        server, names = slots.identify(self._connection), Names.of(self._replicator, log_id)
        self.check_free(noted)
        if names.slot_is_ours and start.drop_ours(self._connection, names):
            log.warning("slot %s was left by an interrupted start: re-created", names.slot)
        fit = start.fit_tables(self._connection, self._replicator, names)
        self._to_publish = start.publishable(self._connection, names, fit, inside=True)
        identity, owner = admission.identity(server, names), ownership.owner(self._replicator)
        return Origin(log_id=log_id, source="postgresql", identity=identity, made=names.made, owner=owner)

    def begin(self, origin: Origin, patience: Patience) -> ResumePoint:
        names = Names.of(self._replicator, origin.log_id)
        making = start.Making(self._config, self._connection, names, self._replicator.spec.source, self._root, patience)
        return ResumePoint(making.begin(self._to_publish))

    def renew(self, origin: Origin, patience: Patience) -> tuple[dict[str, str], ResumePoint]:
        names, server = Names.of_log(self._replicator, origin), slots.identify(self._connection)
        fit = start.fit_tables(self._connection, self._replicator, names, renewing=True)
        tables = start.publishable(self._connection, names, fit, inside=False)
        making = start.Making(self._config, self._connection, names, self._replicator.spec.source, self._root, patience)
        return admission.identity(server, names), ResumePoint(making.renew(tables))

    def failed_over(self, origin: Origin, point: ResumePoint) -> None:
        """A slot belongs to one cluster; on another there is none."""

    def resume(self, origin: Origin, point: ResumePoint) -> None:
        names = Names.of_log(self._replicator, origin)
        self._check_slot(slots.find_slot(self._connection, names.slot), names, point.position)
        release_slot(self._connection, names.slot, names.applications, time.sleep)

    def stream(self, origin: Origin, context: StreamContext) -> PgStream:
        names = Names.of_log(self._replicator, origin)
        config = self._config.named(names.application).bound_to(*admission.bound(origin))
        return PgStream(config, self._connection, self._replicator, names, context)

    def examine(self, origin: Origin | None, renewing: bool) -> Examination:
        spec, names = self._replicator.spec, Names.of_log(self._replicator, origin)
        tables = discover(self._connection, spec.read_tables, spec.read_options)
        found = preflight.check(observe(self._connection, spec.source, names.both, tables))
        spared = renewing and names.slot_is_ours
        measured = sizes(self._connection, tables)
        checks_text = self._connection.info.parameter_status("server_encoding") != "SQL_ASCII"
        return Examination(
            findings=tuple(f for f in found if not (spared and f.name == preflight.SLOT_LOG)),
            tables=tuple(describe(table, measured[table.oid], checks_text) for table in tables),
            of_other_case=tuple(of_other_case(self._connection, spec.tables, spec.options, tables)),
        )

    def check(self, origin: Origin, point: Callable[[], ResumePoint], renewing: bool) -> None:
        names = Names.of_log(self._replicator, origin)
        # In this order: a capture at work records a position before it lets the slot move there.
        slot = slots.find_slot(self._connection, names.slot)
        newest = point()
        self.admit(origin, newest, renewing)
        if not renewing:
            self._check_slot(slot, names, newest.position)
            if publication.look(self._connection, names.publication) is None:
                raise admission.publication_lost(names.publication)

    def check_free(self, noted: Origin | None) -> None:
        names = Names.of(self._replicator, noted.log_id if noted is not None else "")
        admission.check_free(self._replicator, self._root, names, noted, self._connection)

    def retained_bytes(self, origin: Origin) -> int | None:
        return slots.retained_bytes(self._connection, Names.of_log(self._replicator, origin).slot)

    def remove(self, proof: Callable[[], RemovalProof]) -> Iterator[RemovalStep]:
        server = slots.identify(self._connection)

        def claims(now: RemovalProof) -> list[removal.OwnedObject]:
            return list(removal.claims(self._replicator, self._root, now, server))

        def kept_by_now(claim: removal.OwnedObject) -> str | None:
            same = [c for c in claims(proof()) if (c.kind, c.name) == (claim.kind, claim.name)]
            return same[0].kept if same else f"the change log at {self._root} is another one by now"

        for claim in claims(proof()):
            yield removal.drop(self._connection, claim, kept_by_now)

    def _check_slot(self, slot: slots.Slot | None, names: Names, position: Position) -> None:
        admission.check_slot(slot, names.slot, self._config.database, position)
