"""The captured tables and their schema versions: from Relation messages and from the catalog.

Used by the decoder (which form does a row have?) and by the poll (what did the catalog change?). A change that can be
followed is ADD COLUMN; every other one stops the table by name. The catalog may be ahead of the stream, never behind
it: a Relation message is compared with the version in force, and only a column that is new there is looked up.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tailrace.changelog.records import Column, Parts, TableSchema
from tailrace.contract.resources import TableOptions
from tailrace.errors import NoKey, SchemaChangeUnsupported, TableGone, TableStop
from tailrace.sources.masks import require_own
from tailrace.sources.patterns import options_of
from tailrace.sources.postgresql.log.decode import Evolved, Form
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.postgresql.log.pgoutput import Relation
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.stops import STOP_FIX, reserved
from tailrace.sources.unfit import sets_null

TAKEN_IN = "Nothing to do; the table is captured under its new name if tables.include selects that."

TypeName = Callable[[int, int], str]
"""(type oid, modifier) -> the source's type text, like `Column.source_type`."""
Lookup = Callable[[int], PgTable | None]
"""Table oid -> the table as the catalog shows it now."""


@dataclass
class Captured:
    """One captured table."""

    schema: TableSchema
    stopped: bool = False
    relation: Relation | None = None
    """The form last resolved."""
    form: Form | None = None
    attributes: int | None = None
    """Columns that the table had at the last look, dropped ones included."""
    names: Mapping[int, str] = field(default_factory=dict)
    """attnum -> name at the last look, of the columns that the log carries."""
    history: list[TableSchema] = field(default_factory=list)
    """Older versions, for chunks read before a change."""


@dataclass(frozen=True)
class ColumnChanges:
    """What the catalog says about a captured table that the journal does not know."""

    evolved: TableSchema | None = None
    reread: bool = False
    older: bool = False
    """A new column is older than the last look."""
    stop: TableStop | None = None


class CapturedTables:
    """All tables of the journal that are captured or stopped."""

    def __init__(self, type_name: TypeName, lookup: Lookup, options: Sequence[TableOptions] = ()) -> None:
        self._type_name = type_name
        self._lookup = lookup
        self._options = options
        self._types: dict[tuple[int, int], str] = {}
        self.known: dict[int, Captured] = {}

    def add(self, schema: TableSchema, stopped: bool = False, parts: Parts | None = None) -> None:
        self.known[schema.table_id] = Captured(schema, stopped)
        self.looked(schema.table_id, parts)

    def looked(self, table_id: int, parts: Parts | None) -> None:
        """The table's fingerprint, as it is recorded."""
        count = (parts or {}).get("attributes", {}).get("count")
        table = self.known[table_id]
        table.attributes = None if count is None else int(count)
        names = (parts or {}).get("name in the log", {})
        table.names = {int(number): names[number] for number in sorted(names, key=int)}

    def remove(self, table_id: int) -> None:
        del self.known[table_id]

    def is_captured(self, table_id: int) -> bool:
        return table_id in self.known and not self.known[table_id].stopped

    def is_known(self, table_id: int) -> bool:
        return table_id in self.known

    def stop(self, table_id: int) -> None:
        self.known[table_id].stopped = True

    def evolve(self, schema: TableSchema) -> None:
        """A new version is in force. A Relation message already seen may mean it: compare again."""
        table = self.known[schema.table_id]
        # One for each set of columns, the newest: a table that is read again often would else fill memory.
        table.history = [s for s in table.history if not _same_columns(s, table.schema)] + [table.schema]
        table.schema, table.relation, table.form = schema, None, None

    def form_of(self, relation: Relation) -> Form | Evolved | None:
        table = self.known.get(relation.relation_id)
        if table is None or table.stopped:
            return None
        if table.relation == relation:
            return table.form
        try:
            require_own(table.schema)
            evolved, reread = self._follow(table, relation)
        except TableStop:
            table.stopped = True
            raise
        if evolved is not None:
            self.evolve(evolved)
        places = {c.name: i for i, c in enumerate(relation.columns)}
        wire = tuple(places[c.name] for c in table.schema.columns)
        options = options_of(self._options, table.schema.schema_name, table.schema.table_name)
        form = Form(table.schema, wire, len(relation.columns), sets_null(options))
        table.relation, table.form = relation, form
        return form if evolved is None else Evolved(form, reread)

    def _follow(self, table: Captured, relation: Relation) -> tuple[TableSchema | None, bool]:
        """The new schema version that the message means, if any, and whether rows must be read again."""
        schema = table.schema
        name = schema.name
        if (relation.schema_name, relation.table_name) != (schema.schema_name, schema.table_name):
            # The journal has the catalog's name: the message is older than a rename back, or than a schema's rename, of
            # which the source need not tell. Else the table ends here, and is taken in again at the next look.
            there = self._lookup(relation.relation_id)
            if there is None or there.name != name:
                raise TableGone(name, f"{name} is now {relation.schema_name}.{relation.table_name}", TAKEN_IN)
        sent = {c.name: c for c in relation.columns}
        for column in schema.columns:
            self._check_column(name, column, relation)
        new = sent.keys() - {c.name for c in schema.columns}
        as_known = [*sent] == [*table.names.values()]
        now = None if as_known or not (new or table.names) else self._lookup(relation.relation_id)
        if not as_known and not (now is not None and _published_otherwise(schema, [*sent], table.names, now)):
            check_places(schema, [*sent], table.names, set() if now is None else set(now.names))
        if now is None or not new:
            return None, False  # nothing new, or dropped since: its columns will not be missed
        difference = compare(schema, now, new, table.attributes)
        if difference.stop is not None:
            raise difference.stop
        if _renamed_since(schema, now, new):
            evolved = difference.evolved or schema.model_copy(update={"version": schema.version + 1})
            return evolved, True
        return difference.evolved, difference.reread

    def _check_column(self, name: str, column: Column, relation: Relation) -> None:
        sent = next((c for c in relation.columns if c.name == column.name), None)
        if sent is None:
            raise SchemaChangeUnsupported(name, f"column {column.name!r} of {name} was dropped or renamed", STOP_FIX)
        found = self._type(sent.type_oid, sent.type_modifier)
        if found != column.source_type:
            what = f"column {column.name!r} of {name} changed its type from {column.source_type} to {found}"
            raise SchemaChangeUnsupported(name, what, STOP_FIX)
        if column.key is not None and not sent.identity:
            what = f"key column {column.name!r} is no longer part of the replica identity of {name}"
            raise NoKey(name, what, f"Restore the primary key of {name}, or its REPLICA IDENTITY DEFAULT. {STOP_FIX}")

    def _type(self, oid: int, modifier: int) -> str:
        known = self._types.get((oid, modifier))
        if known is None:
            known = self._types[(oid, modifier)] = self._type_name(oid, modifier)
        return known

    def version_with(self, table_id: int, columns: tuple[str, ...]) -> int | None:
        """The newest schema version that has exactly these columns; None: no version does."""
        table = self.known[table_id]
        wanted = set(columns)
        for schema in (table.schema, *reversed(table.history)):
            if {c.name for c in schema.columns} == wanted:
                return schema.version
        return None


def _same_columns(one: TableSchema, other: TableSchema) -> bool:
    return {c.name for c in one.columns} == {c.name for c in other.columns}


def _published_otherwise(schema: TableSchema, sent: Sequence[str], names: Mapping[int, str], now: PgTable) -> bool:
    """Whether the message has more or fewer columns than at the last look because the publication has another list of
    them: all are where the catalog has them, under their names. What that means for the rows, the next look says."""
    there = {**now.names, **now.stored}
    rest = iter([there[number] for number in sorted(there)])
    in_order = all(name in rest for name in sent)
    return len(sent) != len(names) and in_order and all(there.get(c.id) == c.name for c in schema.columns)


def check_places(schema: TableSchema, sent: Sequence[str], names: Mapping[int, str], alive: Collection[int]) -> None:
    """`SchemaChangeUnsupported` if a column of the message can be another one than that of its name.

    A message names columns without their numbers, but in the order of these. So whoever has exchanged names, and may
    have exchanged them back since, has moved them to other places. `names`: the columns at the last look; of these at
    least the `alive`, which the catalog still has, are in the message, and new ones come behind them. Where some have
    been dropped since, a place proves less, and the names before it must be the known ones.
    """
    places = {name: place for place, name in enumerate(sent)}
    known = sorted(schema.columns, key=lambda c: c.id)
    for before, after in pairwise(known):
        if places[before.name] > places[after.name]:
            raise _exchanged(schema.name, after.name)
    for column in known:
        place = places[column.name]
        earlier = {n: name for n, name in names.items() if n < column.id}
        if not names:
            fits = place < column.id
        elif (least := sum(n in alive for n in earlier)) == len(earlier):
            fits = place == least or column.id not in names
        else:
            fits = place >= least and set(sent[:place]) <= set(earlier.values())
        if not fits:
            raise _exchanged(schema.name, column.name)


def _exchanged(table: str, column: str) -> SchemaChangeUnsupported:
    what = f"another column of {table} used to be called {column!r}: column names were exchanged"
    return SchemaChangeUnsupported(table, what, STOP_FIX)


def compare(
    schema: TableSchema, now: PgTable, only: set[str] | None = None, attributes: int | None = None
) -> ColumnChanges:
    """The version in force against the catalog. `only`: take over just these new columns, and judge nothing else (the
    catalog may be ahead of the stream). `attributes`: columns that the table had when last looked at, dropped ones
    included; what bears such a number is new to us, but its rows are not, and the log has never carried their
    values."""
    name = schema.name
    known = {c.id: c for c in schema.columns}
    if only is None:
        stop = now.stop if now.name == name and now.stop is not None else first_stop(schema, now.schema)
        if stop is not None:
            return ColumnChanges(stop=stop)
    looked_at = max(known) if attributes is None else attributes
    added = [c for c in now.columns if c.attnum not in known]
    if only is not None:
        # No ALTER may have come with a column that is only new to us: it is tied to the place of a look, not to a row.
        added = [c for c in added if c.name in only and c.attnum > looked_at]
    if not added:
        return ColumnChanges()
    if any(c.key is not None for c in added):
        what = f"the key of {name} now contains the new column {next(c.name for c in added if c.key is not None)!r}"
        return ColumnChanges(stop=SchemaChangeUnsupported(name, what, STOP_FIX))
    by_number = {c.id: c for c in now.schema.columns}
    columns = (*schema.columns, *(by_number[c.attnum] for c in sorted(added, key=lambda c: c.attnum)))
    evolved = schema.model_copy(update={"version": schema.version + 1, "columns": columns})
    clash = reserved(evolved)
    if clash is not None:
        return ColumnChanges(stop=clash)
    older = any(c.attnum <= looked_at for c in added)
    return ColumnChanges(evolved, older or any(c.has_default or c.has_missing for c in added), older)


def _renamed_since(schema: TableSchema, now: PgTable, new: set[str]) -> bool:
    """The stream brings a new column that the catalog no longer has, and the catalog has another that the stream does
    not bring yet: it may be the same one, renamed since, and its values until then must be read again. Where the
    catalog has no other, the column was dropped and nothing is missed."""
    known = {c.id for c in schema.columns}
    return not new <= {c.name for c in now.columns} and any(
        c.attnum not in known and c.name not in new for c in now.columns
    )
