"""The captured tables and their schema versions: from table maps and from the catalog.

Used by the decoder (which form does a row have?) and by the poll (what did the catalog change?). A change that can be
followed is ADD COLUMN; every other one stops the table by name. Table maps must name their columns
(`binlog_row_metadata=FULL`): the catalog may be newer than the rows, and order and types alone prove nothing.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

from tailrace.changelog.history import retyped
from tailrace.changelog.logged import LoggedSchema, TableLog
from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import Column, Position, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import RESYNC, STOP_FIX, LogIncomplete, SchemaChangeUnsupported, TableStop
from tailrace.selection import filters
from tailrace.selection.masks import described, require_own
from tailrace.sources.log.decode import Evolved
from tailrace.sources.log.tables import StreamTable, StreamTables, same_columns
from tailrace.sources.mysql.cascades import Cascade
from tailrace.sources.mysql.log.definitions import (
    announced,
    cascades_in_parts,
    looked,
    parts_of,
    remembered,
    with_announced,
    with_cascades,
    with_looked,
)
from tailrace.sources.mysql.log.events import whole
from tailrace.sources.mysql.log.in_place import Step
from tailrace.sources.mysql.log.rows import RowForm
from tailrace.sources.mysql.log.table_map import TYPED_ARRAY, TableMap, name_of, table_map
from tailrace.sources.mysql.log.wire_fit import KNOWN, fits, label_texts, same_text
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, identity, number_in, number_of
from tailrace.sources.patterns import options_of
from tailrace.sources.signals import SignalTable
from tailrace.sources.stops import not_awaited
from tailrace.sources.unrepresentable import sets_null

log = logging.getLogger(__name__)
Lookup = Callable[[int], MysqlTable | None]
"""Table id -> the table as the catalog shows it now."""


@dataclass
class Captured(StreamTable):
    """One captured table."""

    table: MysqlTable | None = None
    """The table as last seen in the catalog, with the columns that rows have; None: not looked up yet."""
    reread: bool = False
    """A statement in the log may have changed rows. They are read again for it already; if it brought columns, too,
    the version with these has them read again as well."""
    announced: set[str] = field(default_factory=set)
    """Columns that a statement in the log added, NULL in every row there was, and no version has yet."""
    cascades: frozenset[Cascade] = frozenset()
    """Its foreign keys by which changes of captured tables reach it below the log, as `foreign_keys` saw them last."""
    parts: Parts = field(default_factory=dict)
    """The fingerprint that was recorded last."""
    looked: Position = Position(0)
    """The log's end after the look by which a statement was followed in place: another one before it may have had a
    part in what that look showed."""

    def look_again(self, now: MysqlTable) -> Parts:
        """The fingerprint of the table as it is now, with the version that is in force."""
        parts = with_looked(with_announced(parts_of(now), self.announced), self.looked)
        self.parts = with_cascades(parts, self.cascades)
        return self.parts

    def reads_again(self, evolved: TableSchema) -> bool:
        """True if old rows may have values in the version's new columns. One that no statement added was there before:
        `options[].columns` left it out, or it was added by a session that wrote no log."""
        there = {c.id for c in self.schema.columns}
        return self.reread or any(c.id not in there and c.name not in self.announced for c in evolved.columns)

    def new_columns(self, evolved: TableSchema) -> list[str]:
        """Names of the version's columns that the source did not have before: not those that the options left out."""
        ids = {c.id for c in self.schema.columns}
        before = {c.name for c in self.table.columns} if self.table is not None else set()
        added = (c.name for c in evolved.columns if c.id not in ids)
        return [name for name in added if name in self.announced or name not in before]


class CapturedTables(StreamTables[Captured]):
    """All tables of the journal that are captured or stopped."""

    def __init__(
        self,
        lookup: Lookup,
        charsets: Mapping[int, str],
        mariadb: bool,
        options: Sequence[TableOptions] = (),
        early: bool = False,
        *,
        evolves: Callable[[TableSchema], bool] = lambda schema: False,
        stands_still: Callable[[TableSchema], bool] = lambda schema: False,
        unread: Callable[[int], bool] = lambda table_id: False,
        signals: SignalTable | None = None,
    ) -> None:
        """`charsets`: by the number of a collation. `early`: as in `table_map`. `evolves`, `stands_still`: whether
        columns may go or become others in place, and whether even those that are added stop the table
        (`onSchemaChange`). `unread`: whether the table is to be read for the first time
        since it was added."""
        super().__init__()
        self._evolves = evolves
        self._stands_still = stands_still
        self._unread = unread
        self._options = options
        self._mariadb, self._early = mariadb, early
        self._signals = None if signals is None else (signals.schema_name.encode(), signals.table_name.encode())
        self._lookup = lookup
        self._charsets = charsets
        self._forms: dict[bytes, RowForm] = {}

    def add(self, schema: TableSchema, stopped: bool = False, table: MysqlTable | None = None) -> None:
        self.known[schema.table_id] = Captured(schema, stopped, table)
        self._forms.clear()

    def take_over(self, found: TableLog) -> None:
        """A table of the journal."""
        parts, versions = found.fingerprint or {}, found.schemas
        place = found.schema.schema_name, found.schema.table_name
        nulls = sets_null(options_of(self._options, *place))
        self.known[found.table_id] = Captured(
            schema=found.schema,
            stopped=found.stopped is not None,
            table=remembered(found.schema, parts, nulls),
            history=[version.table for version in versions[:-1]],
            reread=is_marked(versions),
            announced=self.copied(place, announced(parts)),
            cascades=cascades_in_parts(found.schema.name, parts),
            parts=parts,
            looked=looked(parts),
        )

    def copied(self, place: tuple[str, str], columns: set[str]) -> set[str]:
        """Those that are copied. One that is left out gets values that the log does not keep: when it is wanted, it is
        read."""
        options = options_of(self._options, *place)
        return columns if options is None or options.columns is None else columns & set(options.columns)

    @override
    def remove(self, table_id: int) -> None:
        super().remove(table_id)
        self._forms.clear()

    @override
    def stop(self, table_id: int) -> None:
        super().stop(table_id)
        self._forms.clear()

    def has_signals(self, form: bytes) -> bool:
        """True if it is the signal table, copied or not."""
        return self._signals is not None and name_of(form) == self._signals

    def described(self, form: bytes) -> TableMap:
        return table_map(form, self._mariadb, self._early)

    def number(self, form: bytes) -> int:
        """The table's, captured or not."""
        schema, table = name_of(form)
        with whole("TABLE_MAP"):
            return number_of(identity(schema.decode(), table.decode()))

    def has_one_unique_index(self, table_id: int) -> bool | None:
        """True if it has only that of its key, by the catalog of now. None: there is no such table."""
        now = self._lookup(table_id)
        return None if now is None else now.alone

    def evolve(self, schema: TableSchema, table: MysqlTable | None) -> None:
        """A new version is in force."""
        known = self.known[schema.table_id]
        known.evolve(schema)
        known.table, known.reread = table, False
        known.announced -= {c.name for c in schema.columns}
        self._forms.clear()

    def allows(self, known: Captured, step: Step) -> bool:
        """True if the table's policy does."""
        if len(step.schema.columns) > len(known.schema.columns) and self._stands_still(known.schema):
            return False
        if known.schema.history is not None and step.retyped:
            return False
        return step.additive or self._evolves(known.schema)

    def follow(self, known: Captured, schema: TableSchema, table: MysqlTable, looked: Position) -> None:
        """The table is this one behind a statement that was followed in place."""
        if schema is known.schema:
            known.table = table
            self._forms.clear()
        else:
            self.evolve(schema, table)
        known.announced.clear()
        known.looked = looked

    def form_of(self, form: bytes) -> RowForm | Evolved[RowForm] | None:
        """None: the table is not captured, or stopped. `TableStop` when the form cannot be followed; the table counts
        as stopped from then on."""
        found = self._forms.get(form)
        if found is not None:
            return found
        known = self.known.get(self.number(form))
        if known is None or known.stopped:
            return None
        try:
            require_own(known.schema)
            resolved = self._resolve(known, table_map(form, self._mariadb, self._early))
        except TableStop:
            known.stopped = True
            raise
        self._forms[form] = resolved.form if isinstance(resolved, Evolved) else resolved
        return resolved

    def _resolve(self, known: Captured, sent: TableMap) -> RowForm | Evolved[RowForm]:
        """The form by what is known of the table; then by the catalog of now, which may be newer than the rows."""
        name = known.schema.name
        unknown = next((c for c in sent.columns if c.kind not in KNOWN), None)
        if unknown is not None:
            what = f"{name} has a column of the type {unknown.kind}, which cannot be read from the log"
            fix = "Rebuild the table with ALTER TABLE … FORCE, or change the column's type."
            raise LogIncomplete(name, what, _NO_ARRAYS if unknown.kind == TYPED_ARRAY else fix)
        if sent.names is None:
            raise _unnamed(name)
        form = None if known.table is None else _form(known.schema, known.table, sent, self._charsets)
        if form is not None and not _new_names(known, sent):
            return form
        now = self._lookup(known.schema.table_id)
        if now is None:
            if form is not None:
                return form
            raise SchemaChangeUnsupported(name, f"rows of {name} differ from the table, which is gone", STOP_FIX)
        evolved = self.followed(known, now, only=sent.names)
        form = _form(evolved or known.schema, now, sent, self._charsets)
        if form is None:
            return self._resolved_between(known, now, sent)
        # A column that rows have only later is new when they do.
        known.table = _with(now, sent.names)
        if evolved is None:
            known.announced -= set(sent.names)  # the user has no right on them: their values go past
            return form
        reread = known.reads_again(evolved)
        self.evolve(evolved, known.table)
        return Evolved(form, reread)

    def _resolved_between(self, known: Captured, now: MysqlTable, sent: TableMap) -> RowForm | Evolved[RowForm]:
        """Rows of a form that the table had before its present one, and that no look at the catalog has shown: new
        columns wait, in a table that is still to be read for the first time even those of the version are NULL. The
        table is read again, after the change that is still to come in the log."""
        schema = known.schema
        form = _form(schema, now, sent, self._charsets, lenient=self._unread(schema.table_id))
        if form is None:
            what = f"rows of {schema.name} have other columns than the table: it was changed, and changed again since"
            raise SchemaChangeUnsupported(schema.name, what, STOP_FIX)
        known.table = _with(now, {c.name for c in schema.columns} | {c.name for c in now.columns if not c.copied})
        if known.reread:
            return form
        marked = self.marked(known, known.table)
        log.info("%s has schema version %d, it changed again before it was looked at", marked.name, marked.version)
        return Evolved(replace(form, schema=marked), reread=True)

    def marked(self, known: Captured, table: MysqlTable | None) -> TableSchema:
        """A version with the same columns is in force, for which the table is read again: also with columns that come
        later."""
        marked = self._next(known, table)
        known.reread = True
        return marked

    def reread(self, known: Captured) -> TableSchema:
        """Puts a version in force for which the table is read again; no columns are expected with it."""
        reread = known.reread
        marked = self._next(known, known.table)
        known.reread = reread
        return marked

    def _next(self, known: Captured, table: MysqlTable | None) -> TableSchema:
        marked = known.schema.model_copy(update={"version": known.schema.version + 1})
        self.evolve(marked, table)
        return marked

    def followed(self, known: Captured, now: MysqlTable, only: Collection[str] | None = None) -> TableSchema | None:
        """The result of the function `followed`, by the table's policy."""
        evolved = followed(known.schema, now, only)
        if evolved is not None and self._stands_still(known.schema) and (added := known.new_columns(evolved)):
            raise not_awaited(known.schema, added)
        return evolved


_NO_ARRAYS = f"Drop its index over the elements of a JSON array (CAST(… AS … ARRAY)); then {RESYNC}."


def _unnamed(table: str) -> LogIncomplete:
    what = f"rows of {table} came without column names"
    return LogIncomplete(table, what, f"Run SET GLOBAL binlog_row_metadata = FULL on the server; then {RESYNC}.")


def _new_names(known: Captured, sent: TableMap) -> bool:
    """Columns that the catalog did not have when it was last looked at."""
    there = {c.name for c in known.table.columns} if known.table is not None else set()
    return sent.names is not None and not set(sent.names) <= there


def _with(table: MysqlTable, names: Collection[str]) -> MysqlTable:
    return replace(table, columns=tuple(c for c in table.columns if c.name in names))


def _form(
    schema: TableSchema, table: MysqlTable, sent: TableMap, charsets: Mapping[int, str], *, lenient: bool = False
) -> RowForm | None:
    """None: the rows do not fit the definition. `lenient`: their key does, and other columns may be NULL in them."""
    columns = {c.name: c for c in table.columns}
    wire = _Wire(sent, charsets)
    chosen: list[MysqlColumn] = []
    places: list[int | None] = []
    for column in schema.columns:
        known = columns.get(column.name)
        if known is None or (known.form.logical, known.mask) != (column.type, column.mask):
            return None
        place = wire.place(known)
        if place is None and not (lenient and column.key is None):
            return None
        chosen.append(known if place is None else wire.as_logged(known, place))
        places.append(place)
    return RowForm(sent, schema, tuple(chosen), tuple(places))


class _Wire:
    """Finds the catalog's columns in rows."""

    def __init__(self, sent: TableMap, charsets: Mapping[int, str]) -> None:
        self._sent, self._charsets = sent, charsets
        self._places = {name: i for i, name in enumerate(sent.names or ())}
        self._signs = list(sent.signs)

    def place(self, column: MysqlColumn) -> int | None:
        """None: they do not have it, or not like this."""
        place = self._places.get(column.name)
        if place is None:
            return None
        sent = self._sent.columns[place]
        signs = [s for s in self._signs if fits(column.type, sent, None if s is None else s[place])]
        collation, labels = self._sent.collations[place], self._sent.labels[place]
        if not signs or not same_text(column.type, collation, labels, self._charsets):
            return None
        self._signs = signs
        return place

    def as_logged(self, column: MysqlColumn, place: int) -> MysqlColumn:
        labels = self._sent.labels[place]
        if not labels:
            return column
        return replace(column, type=replace(column.type, logged=label_texts(column.type, labels)))


def is_marked(schemas: Sequence[LoggedSchema]) -> bool:
    """True if the newest version was recorded for a statement, and columns that came with it may be still to come."""
    *before, last = schemas
    return last.reread and (not before or same_columns(before[-1].table, last.table))


def followed(schema: TableSchema, now: MysqlTable, only: Collection[str] | None = None) -> TableSchema | None:
    """The version that the catalog's table means; None: the one in force. `TableStop`: it cannot be followed. `only`:
    the columns that rows have by now; others are added by a statement that is still to come in the log."""
    if now.stop is not None:
        raise now.stop
    if now.schema.choice != schema.choice:
        what = filters.changed(schema, now.schema)
        raise SchemaChangeUnsupported(schema.name, what, STOP_FIX)
    there = {c.name: c for c in now.schema.columns}
    for column in schema.columns:
        _check(schema.name, column, there.get(column.name))
        if schema.history is not None and retyped(column, there[column.name]):
            raise _otherwise_typed(schema.name, column, there[column.name])
    known = {c.name for c in schema.columns}
    added = [
        c.model_copy(update={"id": number_in(c.name, schema.version + 1)})
        for c in now.schema.columns
        if c.name not in known and (only is None or c.name in only)
    ]
    if any(c.key is not None for c in added):
        what = f"the key of {schema.name} now contains a new column"
        raise SchemaChangeUnsupported(schema.name, what, STOP_FIX)
    columns = (*(there[c.name].model_copy(update={"id": c.id}) for c in schema.columns), *added)
    if columns == schema.columns:
        return None
    return schema.model_copy(update={"version": schema.version + 1, "columns": columns})


def _otherwise_typed(table: str, column: Column, now: Column) -> SchemaChangeUnsupported:
    what = f"column {column.name!r} of {table} changed its type from {column.source_type} to {now.source_type}"
    return SchemaChangeUnsupported(table, what, STOP_FIX)


def _check(table: str, column: Column, now: Column | None) -> None:
    if now is None:
        what = f"column {column.name!r} of {table} was dropped or renamed"
    elif now.mask != column.mask or (now.type != column.type and now.source_type == column.source_type):
        before, after = described(column.type, column.mask), described(now.type, now.mask)
        what = f"column {column.name!r} of {table} is to be copied as {after}, not as {before}"
    elif now.type != column.type:
        raise _otherwise_typed(table, column, now)
    elif now.key != column.key:
        what = f"the key of {table} changed at column {column.name!r}"
    else:
        return
    raise SchemaChangeUnsupported(table, what, STOP_FIX)
