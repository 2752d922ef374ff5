"""The start of PostgreSQL's stream: publication and slot of a change log, created at its first start and re-created
when its position was lost.

Called by `sources.postgresql.subscription`. What concerns one table only stops that table, at the first look at the
catalog: the start refuses what concerns the whole source.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator, SourceSpec
from tailrace.databases.postgresql.connect import Connection, PgConfig
from tailrace.errors import SourceRefused
from tailrace.seams import seam
from tailrace.sources import patterns
from tailrace.sources.api import CreatedByOther, Interrupted, Patience
from tailrace.sources.findings import refuse
from tailrace.sources.postgresql import admission, preflight, publication, signal_table
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.facts import observe
from tailrace.sources.postgresql.log.connection import release_slot
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.names import Names

log = logging.getLogger(__name__)
Made = TypeVar("Made")
LOOK = 0.5
"""Seconds between two looks at what the making of a slot waits for."""


def fit_tables(connection: Connection, replicator: Replicator, names: Names, renewing: bool = False) -> list[PgTable]:
    """Those to publish, on a source that has passed the preflight; tables may come later. `renewing`: a slot that
    Tailrace made and that has lost its log is replaced."""
    spec = replicator.spec
    tables = discover(connection, spec.read_tables, spec.read_options)
    findings = preflight.check(observe(connection, spec.source, names.both, tables))
    for finding in findings:
        if finding.level == "warn" or finding.name == "tables":
            log.log(logging.INFO if finding.level == "ok" else logging.WARNING, "%s", finding.message)
    for text in patterns.idle(spec.tables, spec.options, [(t.schema_name, t.table_name) for t in tables]):
        log.warning("%s; ignore this if the tables will be created later", text)
    spared = {"tables", preflight.SLOT_LOG} if renewing and names.slot_is_ours else {"tables"}
    refuse(f for f in findings if f.name not in spared)
    return [t for t in tables if t.stop is None]


def publishable(connection: Connection, names: Names, tables: list[PgTable], inside: bool) -> list[PgTable]:
    """Without the tables that we may not put into the publication. `inside`: those that it has stay."""
    made = publication.look(connection, names.publication) if inside else None
    outside = [t for t in tables if made is None or not made.membership(t)]
    refused = slots.unpublishable(connection, names.publication, outside, names.publication_is_ours)
    return [t for t in tables if t.oid not in refused]


def drop_ours(connection: Connection, names: Names) -> bool:
    """Drop the slot of this very change log. Whether there was one."""
    slot = names.slot
    if slots.find_slot(connection, slot) is None:
        return False
    # Held by our own process that was cut off: the server notices a dead peer only after wal_sender_timeout.
    release_slot(connection, slot, names.applications, time.sleep)
    if slots.find_slot(connection, slot) is not None:  # half made, it went with its maker
        slots.drop_slot(connection, slot)
    return True


@dataclass(frozen=True)
class Making:
    """The creation of one change log's objects in the source."""

    config: PgConfig
    connection: Connection
    names: Names
    source: SourceSpec
    root: str
    patience: Patience

    def begin(self, tables: list[PgTable]) -> Position:
        """The publication, then the slot: its position."""
        self._publication(tables)
        # Dying here leaves a publication that the next start takes over.
        seam("capture.after-publication")
        position = self._slot()
        # Dying here leaves a slot without a journal: the next start drops it, for nothing was read from it.
        seam("capture.after-slot")
        return position

    def renew(self, tables: list[PgTable]) -> Position:
        """Makes the same with another slot. Dying before the record is safe: the request is still there, and the slot
        that was made is dropped by the next start."""
        self._publication(tables)
        if self.names.slot_is_ours:
            drop_ours(self.connection, self.names)
        seam("capture.renewal-slot")
        position = self._slot()
        seam("capture.renewal-record")
        return position

    def _publication(self, tables: list[PgTable]) -> None:
        signals = signal_table.look(self.connection, self.source)
        published = tables if signals is None or signals.table is None else [*tables, signals.table]
        slots.ensure_publication(self.connection, self.names.publication, published, self.names.publication_is_ours)

    def _slot(self) -> Position:
        name = self.names.slot
        if not self.names.slot_is_ours:
            return self._given(slots.find_slot(self.connection, name))
        try:
            return self._make(self.config.named(self.names.maker), name)
        except slots.SlotExists:
            # A namesake was faster: the slot is not ours to drop, now or at the next start.
            raise CreatedByOther(admission.of_somebody_else(name, self.root)) from None

    def _make(self, maker: PgConfig, name: str) -> Position:
        """Making a slot waits for every transaction that writes now; meanwhile we say which one is in the way."""
        making = _beside(lambda: slots.create_slot(maker, name))
        said = None
        while not wait([making], timeout=LOOK).done:
            if self.patience.stopping.is_set():
                # The note stays: the server gives the slot up with us, unless it was just done.
                raise Interrupted(f"capture was stopped while it created slot {name}")
            waits = slots.slot_waits_for(self.connection, maker.program)
            self.patience.waits_for(waits)
            if waits is not None and waits.split(",")[0] != said:
                said = waits.split(",")[0]
                log.warning("%s", waits)
        return making.result()

    def _given(self, found: slots.Slot | None) -> Position:
        name = self.names.slot
        if found is None:
            raise SourceRefused(
                f"slot {name!r} does not exist",
                "Create the slot with plugin pgoutput, or remove source.postgresql.slot; in Kubernetes, create another"
                " Replicator.",
            )
        if found.plugin != slots.PLUGIN or found.confirmed is None:
            raise SourceRefused(
                f"slot {name!r} has plugin {found.plugin!r}", f"Create the slot with plugin {slots.PLUGIN}."
            )
        if found.database != self.config.database:
            raise SourceRefused(
                f"slot {name!r} belongs to database {found.database!r}",
                "Re-create the slot in source.database, or use another one; in Kubernetes, create another Replicator.",
            )
        if found.wal_status == "lost":
            raise SourceRefused(f"slot {name!r} has lost its log", "Drop the slot and re-create it.")
        release_slot(self.connection, name, self.names.applications, time.sleep)
        return found.confirmed


def _beside(work: Callable[[], Made]) -> Future[Made]:
    """Done in a thread that a process which ends does not wait for, as it would for an executor's."""
    made: Future[Made] = Future()

    def run() -> None:
        try:
            made.set_result(work())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=run, name="make-slot", daemon=True).start()
    return made
