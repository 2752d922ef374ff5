"""The captured tables and their schema versions: from Relation messages and from the catalog.

Used by the decoder (which form does a row have?) and by the poll (what did the catalog change?). A change that can be
followed is ADD COLUMN and, where the table may evolve, what `in_place` proves; every other one stops the table by name.
A Relation message is compared with the version in force, and what differs is looked up in the catalog, which may be
ahead of the stream. It is never behind it: `CatalogNow.has_ended` waits, and what it cannot wait for is not proven.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from tailrace.changelog.records.tables import Parts
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import STOP_FIX, NoKey, SchemaChangeUnsupported, TableGone, TableStop
from tailrace.selection.masks import require_own
from tailrace.sources.log.decode import Evolved
from tailrace.sources.log.tables import StreamTable, StreamTables
from tailrace.sources.patterns import options_of
from tailrace.sources.postgresql.fingerprint import selection
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.postgresql.log.in_place import added_since, as_in_catalog, as_sent, has_all, renamed, with_types
from tailrace.sources.postgresql.log.pgoutput import Relation, RelationColumn
from tailrace.sources.postgresql.log.walk import Form
from tailrace.sources.postgresql.model import PgTable, number
from tailrace.sources.stops import not_awaited, reserved
from tailrace.sources.unrepresentable import sets_null

TAKEN_IN = "Nothing to do; the table is captured under its new name if tables.include selects that."

TypeName = Callable[[int, int], str]
"""(type oid, modifier) -> the source's type text, like `Column.source_type`."""
Lookup = Callable[[int], PgTable | None]
"""Table oid -> the table as the catalog shows it now."""
HasEnded = Callable[[int, int], bool]
"""(transaction, table oid) -> whether the catalog shows, after a short wait, what the transaction did to the table."""
Asked = Callable[[TableSchema], bool]
"""A question to the policy of the table (`onSchemaChange`)."""


def never(schema: TableSchema) -> bool:
    return False


def always(transaction: int, table_id: int) -> bool:
    return True


@dataclass(frozen=True)
class CatalogNow:
    """How the catalog is asked while the log is read."""

    type_name: TypeName
    lookup: Lookup
    has_ended: HasEnded = always


@dataclass(frozen=True)
class _Found:
    """The table in the catalog, asked for a message of the log."""

    now: PgTable | None
    ended: bool
    """It shows all that the log has of the table up to there."""


Ask = Callable[[], _Found]


@dataclass
class Captured(StreamTable):
    """One captured table."""

    relation: Relation | None = None
    """The form last resolved."""
    form: Form | None = None
    attributes: int | None = None
    """Columns that the table had at the last look, dropped ones included."""
    names: Mapping[int, str] = field(default_factory=dict)
    """attnum -> name at the last look, of the columns that the log carries."""
    selection: str | None = None
    """The selection in the fingerprint; None: the fingerprint is of an older form."""


@dataclass(frozen=True)
class ColumnChanges:
    """The facts of the catalog about a captured table that the journal does not know."""

    evolved: TableSchema | None = None
    reread: bool = False
    older: bool = False
    """A new column is older than the last look."""
    stop: TableStop | None = None


class CapturedTables(StreamTables[Captured]):
    """All tables of the journal that are captured or stopped."""

    def __init__(
        self,
        catalog: CatalogNow,
        options: Sequence[TableOptions] = (),
        evolves: Asked = never,
        stands_still: Asked = never,
    ) -> None:
        """`evolves`: columns that are dropped, renamed or of another type are followed in place. `stands_still`: not
        even those that are added are followed."""
        super().__init__()
        self._stands_still = stands_still
        self._catalog = catalog
        self._options = options
        self._evolves = evolves
        self._types: dict[tuple[int, int], str] = {}

    def add(self, schema: TableSchema, stopped: bool = False, parts: Parts | None = None) -> None:
        table = self.known[schema.table_id] = Captured(schema, stopped)
        self.looked(schema.table_id, parts)
        if table.names and table.attributes is not None:
            # A message may have brought more since that look.
            young = {number(c): c.name for c in schema.columns if number(c) > table.attributes}
            table.names, table.attributes = {**table.names, **young}, max([table.attributes, *young])

    def looked(self, table_id: int, parts: Parts | None) -> None:
        """The table's fingerprint, as it is recorded."""
        count = (parts or {}).get("attributes", {}).get("count")
        table = self.known[table_id]
        table.attributes = None if count is None else int(count)
        table.selection = (parts or {}).get("selection", {}).get("columns")
        names = (parts or {}).get("name in the log", {})
        table.names = {int(number): names[number] for number in sorted(names, key=int)}

    def reselected(self, table_id: int) -> bool:
        """True if other columns are to be copied than at the last look: one that came since may have been left out at
        first, so its rows are not all in the log."""
        known = self.known[table_id]
        options = options_of(self._options, known.schema.schema_name, known.schema.table_name)
        return known.selection not in (None, selection(options))

    def evolve(self, schema: TableSchema) -> None:
        """A new version is in force. A Relation message already seen may mean it: compare again."""
        table = self.known[schema.table_id]
        table.evolve(schema)
        table.relation, table.form = None, None

    def form_of(self, relation: Relation, transaction: int, described: bool) -> Form | Evolved[Form] | None:
        """None: the table is not captured, or stopped. Raises `TableStop` when the form cannot be followed; the table
        counts as stopped from then on. `transaction`: the last one that brings such rows; `described`: the server has
        described the table again for them, as it does after every ALTER."""
        table = self.known.get(relation.relation_id)
        if table is None or table.stopped:
            return None
        # Where columns are followed in place, the same message can mean others: one that was dropped and added again.
        if table.relation == relation and not (described and self._evolves(table.schema)):
            return table.form
        try:
            require_own(table.schema)
            evolved, reread = self._followed(table, relation, cache(lambda: self._find(table, transaction)))
        except TableStop:
            table.stopped = True
            raise
        if evolved is not None:
            # Rows without a key are compared with all their columns: those in the target have not the new ones.
            reread |= table.schema.keyless
            self.evolve(evolved)
        places = {c.name: i for i, c in enumerate(relation.columns)}
        wire = tuple(places[c.name] for c in table.schema.columns)
        options = options_of(self._options, table.schema.schema_name, table.schema.table_name)
        form = Form(table.schema, wire, len(relation.columns), sets_null(options))
        table.relation, table.form = relation, form
        return form if evolved is None else Evolved(form, reread)

    def _find(self, table: Captured, transaction: int) -> _Found:
        ended = self._catalog.has_ended(transaction, table.schema.table_id)  # first: what is found shall show it
        return _Found(self._catalog.lookup(table.schema.table_id), ended)

    def _followed(self, table: Captured, relation: Relation, ask: Ask) -> tuple[TableSchema | None, bool]:
        """The new schema version that the message means, if any, and whether rows must be read again."""
        schema = table.schema
        if not self._evolves(schema):
            return self._follow(schema, table, relation, ask)
        found, sent = ask(), [c.name for c in relation.columns]
        now = found.now
        if now is None or not has_all(table.names, table.attributes, now):
            return self._follow(schema, table, relation, ask)  # and no look will follow what is not proven here
        proven = as_sent(sent, table.names, table.attributes, now) if found.ended else None
        moved = None if proven is None else renamed(schema, table.names, proven, now)
        if proven is None or moved is None:
            self._follow(schema, table, relation, ask)  # a better reason, if there is one
            if now.stop is not None:
                raise now.stop
            what = f"columns of {schema.name} were dropped, renamed or added, and nothing proves which ones the log has"
            raise SchemaChangeUnsupported(schema.name, what, STOP_FIX)
        if clash := reserved(moved):
            raise clash
        sent_as = {c.name: self._type_of(c) for c in relation.columns}
        typed = with_types(moved, now, {n: sent_as[name] for n, name in proven.items()})
        # As if a look had seen them here: the next message is judged from this one on.
        table.names = proven
        if typed is None:
            return self._follow(moved, table, relation, ask)  # which names the column
        if typed.columns == schema.columns:
            return self._follow(schema, table, relation, ask)
        added, reread = self._follow(typed, table, relation, ask)
        reread |= is_retyped(schema, typed)
        return (typed if added is None else added.model_copy(update={"version": typed.version})), reread

    def _follow(
        self, schema: TableSchema, table: Captured, relation: Relation, ask: Ask
    ) -> tuple[TableSchema | None, bool]:
        """Returns the schema version that holds from this message on."""
        name = schema.name
        if (relation.schema_name, relation.table_name) != (schema.schema_name, schema.table_name):
            # The journal has the catalog's name: the message is older than a rename back, or than a schema's rename, of
            # which the source need not tell. Else the table ends here, and is taken in again at the next look.
            there = ask().now
            if there is None or there.name != name:
                raise TableGone(name, f"{name} is now {relation.schema_name}.{relation.table_name}", TAKEN_IN)
        sent = {c.name: c for c in relation.columns}
        for column in schema.columns:
            self._check_column(name, column, relation)
        new = sent.keys() - {c.name for c in schema.columns}
        as_known = [*sent] == [*table.names.values()]
        now = None if as_known or not (new or table.names) else ask().now
        if not as_known and not (now is not None and _published_otherwise(schema, [*sent], table.names, now)):
            check_places(schema, [*sent], table.names, set() if now is None else set(now.names))
        if now is None or not new:
            return None, False  # nothing new, or dropped since: its columns will not be missed
        # With the type that the catalog has by now, its values here would be read as what they are not.
        retyped = {c.name for c in now.columns if c.name in new and self._type_of(sent[c.name]) != c.source_type}
        attributes = now.attributes if self.reselected(schema.table_id) else table.attributes
        difference = compare(schema, now, new - retyped, attributes)
        if difference.stop is not None:
            raise difference.stop
        if self._stands_still(schema) and (difference.evolved is not None or retyped):
            raise not_awaited(schema, sorted(new))
        since = max(number(c) for c in schema.columns) if table.attributes is None else table.attributes
        added = added_since([*sent], new - set(table.names.values()), since, now) if ask().ended else None
        if added is None or retyped:
            evolved = difference.evolved or schema.model_copy(update={"version": schema.version + 1})
            return evolved, True
        if difference.evolved is not None and table.names:
            table.names, table.attributes = {**table.names, **added}, max([since, *added])
        return difference.evolved, difference.reread

    def _check_column(self, name: str, column: Column, relation: Relation) -> None:
        sent = next((c for c in relation.columns if c.name == column.name), None)
        if sent is None:
            raise SchemaChangeUnsupported(name, f"column {column.name!r} of {name} was dropped or renamed", STOP_FIX)
        found = self._type_of(sent)
        if found != column.source_type:
            what = f"column {column.name!r} of {name} changed its type from {column.source_type} to {found}"
            raise SchemaChangeUnsupported(name, what, STOP_FIX)
        if column.key is not None and not sent.identity:
            what = f"key column {column.name!r} is no longer part of the replica identity of {name}"
            raise NoKey(name, what, f"Restore the primary key of {name}, or its REPLICA IDENTITY DEFAULT. {STOP_FIX}")

    def _type_of(self, sent: RelationColumn) -> str:
        oid, modifier = sent.type_oid, sent.type_modifier
        known = self._types.get((oid, modifier))
        if known is None:
            known = self._types[(oid, modifier)] = self._catalog.type_name(oid, modifier)
        return known

    def compare(self, table_id: int, now: PgTable) -> ColumnChanges:
        """The table against the catalog."""
        table = self.known[table_id]
        names = table.names if self._evolves(table.schema) else None
        reselected = self.reselected(table_id)
        found = compare(table.schema, now, attributes=table.attributes, in_place=names, reselected=reselected)
        if found.evolved is not None and self._stands_still(table.schema):
            since = max(map(number, table.schema.columns)) if table.attributes is None else table.attributes
            if added := [c.name for c in found.evolved.columns if number(c) > since]:
                return ColumnChanges(stop=not_awaited(table.schema, added))
        return found


def _published_otherwise(schema: TableSchema, sent: Sequence[str], names: Mapping[int, str], now: PgTable) -> bool:
    """True if the message has more or fewer columns than at the last look because the publication has another list of
    them: all are where the catalog has them, under their names. What that means for the rows, the next look says."""
    there = {**now.names, **now.stored}
    rest = iter([there[number] for number in sorted(there)])
    in_order = all(name in rest for name in sent)
    return len(sent) != len(names) and in_order and all(there.get(number(c)) == c.name for c in schema.columns)


def check_places(schema: TableSchema, sent: Sequence[str], names: Mapping[int, str], alive: Collection[int]) -> None:
    """`SchemaChangeUnsupported` if a column of the message can be another one than that of its name.

    A message names columns without their numbers, but in the order of these. So an exchange of names, even one that was
    reverted since, has moved them to other places. `names`: the columns at the last look; of these at least the
    `alive`, which the catalog still has, are in the message, and new ones come behind them. Where some have been
    dropped since, a place proves less, and the names before it must be the known ones.
    """
    places = {name: place for place, name in enumerate(sent)}
    known = sorted(schema.columns, key=number)
    for before, after in pairwise(known):
        if places[before.name] > places[after.name]:
            raise _exchanged(schema.name, after.name)
    for column in known:
        place, attnum = places[column.name], number(column)
        earlier = {n: name for n, name in names.items() if n < attnum}
        if not names:
            fits = place < attnum
        elif (least := sum(n in alive for n in earlier)) == len(earlier):
            fits = place == least or attnum not in names
        else:
            fits = place >= least and set(sent[:place]) <= set(earlier.values())
        if not fits:
            raise _exchanged(schema.name, column.name)


def _exchanged(table: str, column: str) -> SchemaChangeUnsupported:
    what = f"another column of {table} used to be called {column!r}: column names were exchanged"
    return SchemaChangeUnsupported(table, what, STOP_FIX)


def compare(
    schema: TableSchema,
    now: PgTable,
    only: set[str] | None = None,
    attributes: int | None = None,
    in_place: Mapping[int, str] | None = None,
    *,
    reselected: bool = False,
) -> ColumnChanges:
    """The version in force against the catalog. `only`: take over just these new columns, and judge nothing else (the
    catalog may be ahead of the stream). `attributes`: columns that the table had when last looked at, dropped ones
    included; what bears such a number is new to us, but its rows are not, and the log has never carried their
    values. `in_place`: columns that are dropped, renamed or of another type are taken over; the names at the last
    look. `reselected`: no column that the version lacks is certainly new."""
    name = schema.name
    known = {number(c): c for c in schema.columns}
    moved: TableSchema | None = None
    if only is None:
        stop = now.stop if now.name == name and now.stop is not None else first_stop(schema, now.schema)
        if isinstance(stop, SchemaChangeUnsupported) and in_place is not None:
            moved = as_in_catalog(schema, now, in_place, attributes)
        if stop is not None and moved is None:
            return ColumnChanges(stop=stop)
    looked_at = max(known) if attributes is None else attributes
    added = [c for c in now.columns if c.attnum not in known]
    if only is not None:
        # No ALTER may have come with a column that is only new to us: it is tied to the place of a look, not to a row.
        added = [c for c in added if c.name in only and c.attnum > looked_at]
    if not added and moved is None:
        return ColumnChanges()
    if any(c.key is not None for c in added):
        what = f"the key of {name} now contains the new column {next(c.name for c in added if c.key is not None)!r}"
        return ColumnChanges(stop=SchemaChangeUnsupported(name, what, STOP_FIX))
    by_number = {c.id: c for c in now.schema.columns}
    columns = (*(moved or schema).columns, *(by_number[c.attnum] for c in sorted(added, key=lambda c: c.attnum)))
    evolved = schema.model_copy(update={"version": schema.version + 1, "columns": columns})
    clash = reserved(evolved)
    if clash is not None:
        return ColumnChanges(stop=clash)
    older = any(reselected or c.attnum <= looked_at for c in added)
    reread = older or schema.keyless or is_retyped(schema, evolved)
    reread |= any(c.has_default or c.has_missing for c in added)
    return ColumnChanges(evolved, reread, older)


def is_retyped(before: TableSchema, after: TableSchema) -> bool:
    """True if a column has become another one under its number: the rows that exist have no value of it."""
    ids = {number(column): column.id for column in before.columns}
    return any(ids.get(number(column), column.id) != column.id for column in after.columns)
