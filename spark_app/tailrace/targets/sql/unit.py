"""The unit of a database: one table, or all tables that are level, moved by one transaction.

The transaction holds everything: columns, rows, states and the group's record. It begins with the states that this
driver knows, and ends only if they are still what it read: whatever another driver has done since is read first.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tailrace.batch.applied import AppliedState
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.errors import RESYNC, Fenced, Retry, TailraceError, TargetChanged, TargetRefused
from tailrace.seams import seam
from tailrace.targets.api import (
    Admit,
    ChunkLost,
    NeededChunks,
    Opened,
    Opening,
    Runtime,
    TableFailed,
    UnitBatch,
    VersionAt,
)
from tailrace.targets.sql import columns, handover, loaded, staged, state, unloading
from tailrace.targets.sql.batch import apply_keyed
from tailrace.targets.sql.changes import apply_changes
from tailrace.targets.sql.chunk_writer import SqlChunkWriter, wire_form
from tailrace.targets.sql.columns import is_unique
from tailrace.targets.sql.compare import SqlLook
from tailrace.targets.sql.first_copy import CopyKey, Form
from tailrace.targets.sql.keyless import apply_keyless
from tailrace.targets.sql.obstacles import foreign_fix, refuse_handed_over, refuse_namesakes, refuse_what_is_there
from tailrace.targets.sql.session import Place, TargetSession, TargetSessions, UnfitValue, table
from tailrace.targets.sql.soft_delete import apply_marked
from tailrace.targets.sql.state import Group, StoredCopy
from tailrace.targets.sql.versions import apply_versions

log = logging.getLogger(__name__)

Make = Callable[[TargetSession, Place, TableSchema, Callable[[int], None]], None]
"""Makes a copy of this schema; the last argument keeps its number."""


@dataclass
class SqlUnits:
    """See `targets.api.Units`."""

    sessions: TargetSessions
    run: Runtime
    place_of: Callable[[TableSchema], Place]
    tables: dict[int, "OpenedTable"] = field(default_factory=dict)
    """Shared by all units: a table that joins another is not opened again. Each table is in one unit at a time."""
    merges: bool = False
    """Tables of several schemas of the source go into one."""
    adopts: bool = False
    """Tables that are there already are taken over, if they fit."""
    compared: bool = False
    """The target is known not to be the source."""
    most_tables: int | None = None
    """Copies that one transaction can change; None: any number."""
    hands_over: bool = True
    """Copies can become tables that programs write to (`tailrace cutover`)."""

    def alone(self) -> "SqlUnit":
        return SqlUnit(self, together=False)

    def group(self) -> "SqlUnit":
        return SqlUnit(self, together=True)

    def check_copy(self, session: TargetSession, copy: StoredCopy) -> None:
        """Called when a copy is opened that was there: `TableStop`, if it cannot be continued."""

    def require_other_database(self, session: TargetSession, log_id: str) -> None:
        """Before the first copy is made; the source may be away later."""
        if not self.compared and not state.has_copies_of(session, log_id):
            self.run.require_other_database()
        self.compared = True


@dataclass
class OpenedTable:
    """A table as it was opened."""

    opening: Opening
    copy: StoredCopy
    """The copy that batches are applied to."""
    shape: int | None = None
    """The schema version that its columns have; None: not known yet."""
    key: CopyKey = field(default_factory=CopyKey)

    @property
    def place(self) -> Place:
        """The place of that copy."""
        return self.copy.where

    def form(self, session: TargetSession, part: TableSlice) -> Form:
        return lambda: staged.form_of(session, part.schema, self.opening.generation)


@dataclass
class SqlUnit:
    """See `targets.api.Unit`."""

    units: SqlUnits
    together: bool
    group: Group | None = None
    """None: not read yet, or perhaps moved by something else since."""
    found: dict[int, Opened] = field(default_factory=dict)
    """Tables that were opened before another one failed: they are not asked again for each that does."""

    @property
    def sessions(self) -> TargetSessions:
        return self.units.sessions

    @property
    def tables(self) -> dict[int, OpenedTable]:
        return self.units.tables

    @property
    def admit(self) -> Admit:
        return self.units.run.admit

    # ---- opening ----

    def open(self, tables: Mapping[int, Opening], log_id: str) -> Mapping[int, Opened]:
        with self.sessions.session() as session:
            handover.refuse(session, log_id)  # needs no source: after a cutover it may be gone for good
            self.units.require_other_database(session, log_id)
            state.prepare(session)
            self.group = None
            for table_id, opening in tables.items():
                known = self.tables.get(table_id)
                if table_id in self.found and known is not None and known.opening == opening:
                    continue
                self.tables.pop(table_id, None)
                try:
                    with session.transaction():
                        made = self._opened(session, opening, log_id)
                        self.units.check_copy(session, made)
                        # This process does not know what such a copy has.
                        closed = session.late_keys is None or not loaded.withdraw(session, made.relation)
                except Fenced:
                    raise
                except TailraceError as error:
                    if isinstance(error, Retry) and error.away:
                        raise
                    self._end_left_open(session, error, [self.units.place_of(opening.schema)])
                    raise TableFailed(table_id, error) from error
                self.tables[table_id] = OpenedTable(opening, made, key=CopyKey(closed=closed))
                level = made.member or not self.together
                self.found[table_id] = Opened(made.applied, made.hidden, level)
        found, self.found = self.found, {}
        return found

    def _opened(self, session: TargetSession, opening: Opening, log_id: str) -> StoredCopy:
        schema, generation, place = opening.schema, opening.generation, self.units.place_of(opening.schema)
        stored = self._owned(session, opening.schema, place, log_id)
        present, new = stored.get(False), generation.begin(schema, log_id)
        if self.units.merges:
            refuse_namesakes(opening, place, present)
        if present is not None and present.applied.generation > generation.number:
            raise TargetChanged(schema.name, "the target is of a later generation", f"To copy it again, {RESYNC}.")
        if present is not None and generation.holds(present.applied, schema.table_id):
            return present
        if present is None and session.relation(place) is not None:
            return self._adopted(session, opening, place, stored, new)
        if present is None and self.units.hands_over:
            refuse_handed_over(session, schema, place)
        if present is None or not generation.keeps:
            return self._replaced(session, opening, place, stored, new)
        known = stored.get(True)
        if known is not None and generation.holds(known.applied, schema.table_id):
            return known
        return self._made(session, StoredCopy(place, True, 0, False, "", new, schema), stored)

    def _owned(
        self, session: TargetSession, schema: TableSchema, place: Place, log_id: str
    ) -> Mapping[bool, StoredCopy]:
        """The copies of a place. One whose table is gone is forgotten: the change log knows what it lacks then. Refuses
        what is not this change log's."""
        session.discard_unfinished(place)
        found, name = state.settled_copies(session, place, self.admit), ".".join(place)
        for hidden, copy in list(found.items()):
            if hidden:
                session.discard_unfinished(copy.where)
            if copy.applied.log_id != log_id:
                raise TargetRefused(
                    f"table {name} of the target belongs to change log {copy.applied.log_id}",
                    foreign_fix(schema),
                )
            if session.relation(copy.where) is None:
                self.admit()  # else it may be a newer driver's record, which is about to create the table
                log.warning("table %s of the target was dropped by another program", name, extra={"table": schema.name})
                state.remove(session, copy)
                del found[hidden]
        present, relation = found.get(False), session.relation(place)
        if relation is not None and (present is None or relation != present.relation):
            refuse_what_is_there(session, schema, place, adopts=self.units.adopts)
            if present is not None:
                del found[False]
                state.remove(session, present)
        return found

    def _adopted(
        self,
        session: TargetSession,
        opening: Opening,
        place: Place,
        stored: Mapping[bool, StoredCopy],
        new: AppliedState,
    ) -> StoredCopy:
        """The table that is there, as a copy without rows."""
        for copy in stored.values():
            self._drop(session, copy)
        log.info("table %s of the target is taken over", ".".join(place), extra={"table": opening.schema.name})
        return self._noted(session, StoredCopy(place, False, 0, False, "", new, opening.schema), columns.adopt)

    def _replaced(
        self,
        session: TargetSession,
        opening: Opening,
        place: Place,
        stored: Mapping[bool, StoredCopy],
        new: AppliedState,
    ) -> StoredCopy:
        """A table without rows in the place of what is there."""
        for copy in stored.values():
            self._drop(session, copy)
        return self._made(session, StoredCopy(place, False, 0, False, "", new, opening.schema), {})

    def _made(self, session: TargetSession, copy: StoredCopy, stored: Mapping[bool, StoredCopy]) -> StoredCopy:
        if copy.hidden and True in stored:
            self._drop(session, stored[True])
        return self._noted(session, copy, columns.create)

    def _noted(self, session: TargetSession, copy: StoredCopy, make: Make) -> StoredCopy:
        made: list[StoredCopy] = []

        def note(relation: int) -> None:
            made.append(replace(copy, relation=relation, stored=state.text_of(copy.applied)))
            state.add(session, made[0])
            seam("copy.recorded")
            self.admit()

        make(session, copy.where, copy.schema, note)
        return made[0]

    def _drop(self, session: TargetSession, copy: StoredCopy) -> None:
        self.admit()
        unloading.settle(session, copy)
        session.run(f"DROP TABLE IF EXISTS {table(session, copy.where)}")
        state.remove(session, copy)

    def forget(self, table_id: int) -> None:
        """Its next unit may have opened it by now."""
        self.found.pop(table_id, None)

    def missing(self) -> frozenset[int]:
        known = dict(self.tables)
        with self.sessions.session() as session:
            logs = {t.copy.applied.log_id for t in known.values()} if self.units.hands_over else set()
            if any(handover.report_of(session, log_id) for log_id in logs):
                return frozenset(known)  # to be refused when they are opened again
            there = session.relations({table.place[0] for table in known.values()})
        return frozenset(i for i, table in known.items() if there.get(table.place) != table.copy.relation)

    # ---- batches ----

    def apply(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        after: dict[int, AppliedState] = {}
        try:
            for part in self._divided(batch):
                after |= self._committed(part)
        except TableFailed as failed:
            failed.moved = frozenset(after)
            raise
        return after

    def _divided(self, batch: UnitBatch) -> Iterator[UnitBatch]:
        """The batch as as many transactions as it takes. Tables of all but the last leave the group, with what they
        hold then, and are in it again with the last: dying between two leaves some that are ahead of the others."""
        most, left = self.units.most_tables, list(batch.slices)
        while self.together and most is not None and len(left) > most:
            some, left = left[:most], left[most:]
            log_id = self.tables[some[0]].copy.applied.log_id
            with self.sessions.session() as session:
                group = self.group = self.group or Group.read(session, log_id)
            yield UnitBatch(group.record, group.members.difference(some), {id_: batch.slices[id_] for id_ in some})
        yield replace(batch, slices={id_: batch.slices[id_] for id_ in left})

    def _committed(self, batch: UnitBatch) -> Mapping[int, AppliedState]:
        """One transaction."""
        with self.sessions.session() as session:
            try:
                self._withdraw_loads(session, batch)
                with session.batch(lambda: self._define(session, batch)):
                    stay = batch.tables if self.together else frozenset[int]()
                    after = {id_: self._brought(session, id_, part, id_ in stay) for id_, part in batch.slices.items()}
                    self._check_deferred(session, batch)
                    for table_id in batch.publish:
                        self._publish(session, table_id)
                    group = self._moved(session, batch) if self.together else None
                    seam("apply.before-commit")
                    self.admit()
            except BaseException as error:
                self.group = None
                for table_id in batch.slices:
                    self.tables[table_id].shape, self.tables[table_id].key = None, CopyKey()
                members = map(self.tables.get, {*batch.slices, *batch.tables})  # some may not be open
                self._end_left_open(session, error, [known.place for known in members if known is not None])
                raise
        seam("apply.after-commit")
        self.group = group
        for table_id, copy in after.items():
            self.tables[table_id].copy = copy
        return {table_id: copy.applied for table_id, copy in after.items()}

    def _end_left_open(self, session: TargetSession, error: BaseException, copies: Sequence[Place]) -> None:
        """Called when `error` has ended a transaction. Of these copies no other session changes rows but that of a
        driver which was overtaken: where it stands still, its locks would last. Ending it is safe: what it has
        committed, their states tell."""
        met = error.error if isinstance(error, TableFailed) else error
        if not (isinstance(met, Retry) and met.locked):
            return
        self.admit()
        with suppress(TailraceError):  # the error itself is told
            for name in session.end_left_open(copies):
                log.warning("%s of the target was ended: it kept copies locked for a driver that was overtaken", name)

    def _withdraw_loads(self, session: TargetSession, batch: UnitBatch) -> None:
        """Withdraw permissions that the batch ends, in a transaction before it: if it meets a load that is under way,
        no other begins meanwhile."""
        for table_id, part in batch.slices.items():
            known = self.tables[table_id]
            if known.key.withdraws(part, known.form(session, part)):
                loaded.withdraw(session, known.copy.relation)
                # Dying here is safe: whoever opens the copy withdraws the permission as well.
                seam("load.withdrawn")

    def _check_deferred(self, session: TargetSession, batch: UnitBatch) -> None:
        """Each table its own constraints first: a row that violates one is that table's fault."""
        for of_others in (False, True):
            for table_id, part in batch.slices.items():
                with self._error_of(table_id, part.schema.name):
                    session.check_deferred(self.tables[table_id].place, of_others=of_others)

    def _moved(self, session: TargetSession, batch: UnitBatch) -> Group:
        log_id = next(self.tables[table_id].copy.applied.log_id for table_id in (*batch.tables, *batch.slices))
        return (self.group or Group.read(session, log_id)).move(session, batch.record, batch.tables)

    def _define(self, session: TargetSession, batch: UnitBatch) -> None:
        """Bring the tables themselves to what the batch needs."""
        for table_id, part in batch.slices.items():
            with self._error_of(table_id, part.schema.name):
                self._shape(session, self.tables[table_id], part)
        for table_id in batch.publish:
            seam("publish.before")
            copy = self.tables[table_id].copy
            self._owned(session, copy.schema, copy.place, copy.applied.log_id)
            session.replace(copy.place, copy.where, partial(self._admit, session, copy))
            seam("publish.after")

    def _shape(self, session: TargetSession, known: OpenedTable, part: TableSlice) -> None:
        staged.require_forms(session, known.opening.generation, part)
        known.key.prepare(session, known.copy, part, known.form(session, part))
        if known.shape != part.schema.version:
            copy = known.copy
            admit = partial(self._admit, session, copy)
            columns.evolve(session, known.place, copy.schema, part.schema, admit)
            known.shape = part.schema.version

    def _admit(self, session: TargetSession, copy: StoredCopy) -> None:
        """A driver that has been overtaken must not change a table either."""
        state.check(session, copy)
        self.admit()

    def _brought(self, session: TargetSession, table_id: int, part: TableSlice, member: bool) -> StoredCopy:
        with self._error_of(table_id, part.schema.name), session.about(table_id):
            return self._with_batch(session, self.tables[table_id], part, member)

    @contextmanager
    def _error_of(self, table_id: int, name: str) -> Iterator[None]:
        try:
            yield
        except (Fenced, TableFailed):
            raise
        except Retry as error:
            if error.away and not isinstance(error, ChunkLost):
                raise
            raise TableFailed(table_id, error) from error
        except TailraceError as error:
            raise TableFailed(table_id, error) from error
        except UnfitValue as error:
            raise TableFailed(table_id, error.of(name)) from error

    def _with_batch(self, session: TargetSession, known: OpenedTable, part: TableSlice, member: bool) -> StoredCopy:
        copy, name = known.copy, table(session, known.place)
        if part.schema.history == "Changes":
            apply_changes(session, self.units.run.log, part, name)
            applied = part.applied_after(frozenset())
        elif part.schema.keyless:
            apply_keyless(session, self.units.run.log, part, name)
            applied = part.applied_after(frozenset())
        elif part.schema.history == "Versions":
            applied = part.applied_after(apply_versions(session, self.units.run.log, part, name, time.time()))
        elif part.schema.history == "SoftDelete":
            applied = part.applied_after(apply_marked(session, self.units.run.log, part, name))
        else:
            appends = known.key.appends(session, copy, part, known.form(session, part))
            applied = part.applied_after(apply_keyed(session, self.units.run.log, part, name, appends=appends))
            if part.finished:
                known.key.build(session, copy, part.schema)
        self._check_table(session, copy)
        after = replace(copy, applied=applied, stored=state.text_of(applied), schema=part.schema, member=member)
        state.put(session, copy, after)
        return after

    def _check_table(self, session: TargetSession, copy: StoredCopy) -> None:
        """Called when it is locked: the rows went into our table, and nothing else changed rows because of that."""
        if not session.is_undisturbed(copy.where, copy.relation):
            raise Retry(f"table {'.'.join(copy.where)} of the target was dropped or replaced by another program")

    def _publish(self, session: TargetSession, table_id: int) -> None:
        """The new copy has taken the place of what readers see."""
        copy = self.tables[table_id].copy
        state.publish(session, copy, copy.relation)
        log.info("%s: the new copy is complete and has taken the old one's place", copy.schema.name)

    # ---- chunks ----

    def chunk_writer(self, schema: TableSchema) -> SqlChunkWriter:
        known = self.tables[schema.table_id]
        with self.sessions.session() as session:
            form, wire = staged.form_of(session, schema, known.opening.generation), wire_form(session, schema)
        copy = (known.place, known.copy.relation) if is_unique(schema) and schema.history is None else None
        return SqlChunkWriter(self.sessions, known.copy.applied.log_id, schema, form, copy, wire)

    def version_at(self, table_id: int, record: RecordNumber) -> VersionAt:
        """Nothing is kept of a moment that has passed."""
        return VersionAt(None, self.tables[table_id].copy.applied)

    def newest_version(self, table_id: int) -> None:
        """There are no versions."""

    def take_written(self, table_id: int) -> None:
        """There are no files."""

    def keep(self, table_id: int, versions: Mapping[str, int]) -> None:
        """Nothing can be kept."""

    def look(self, schema: TableSchema, applied: AppliedState) -> SqlLook:
        copy = self.tables[schema.table_id].copy
        where = copy.place, copy.hidden, applied.log_id
        return SqlLook(self.sessions, self.units.run.log, *where, applied.applied_record, schema)

    def tidy(self, schema: TableSchema, applied: AppliedState, needed: NeededChunks, now: float) -> None:
        if needed.reading:
            return
        known = self.tables[schema.table_id]
        with self.sessions.session() as session:
            if not known.key.is_there:  # a snapshot that was given up has brought rows
                with session.transaction(partial(self._admit, session, known.copy)):
                    if session.relation(known.place) == known.copy.relation:
                        known.key.build(session, known.copy, known.copy.schema)
            there = set(staged.staged_paths(session, applied.log_id, schema.table_id))
            left = sorted(there - needed.paths)
            if left:
                self.admit()
                staged.drop(session, left)
