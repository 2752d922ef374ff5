"""`tailrace diff`: what a changed manifest would do to a Replicator, without doing it.

Fields by `contract.change`, as the driver judges them. Tables only where their selection or form changes: the source is
then asked for its tables as both manifests give them, and says itself what it cannot follow.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tailrace.changelog.history import is_kept
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.change import Effect, effect, refusal
from tailrace.contract.resources import Replicator, ReplicatorSpec, TablesSpec
from tailrace.driver.asking.live_spec import differences, of_chunks
from tailrace.errors import RemovalUnconfirmed
from tailrace.logs import visible
from tailrace.places import Places
from tailrace.selection import masks
from tailrace.sources import removals
from tailrace.sources.api import Session, Table
from tailrace.sources.hidden import hides
from tailrace.sources.stops import evolves

TableEffect = Literal["captured", "released", "readAgain", "startsOver", "stops"]
_FIELDS: Mapping[Effect, str] = {
    "live": "takes effect in the running driver",
    "operator": "takes effect without the driver",
    "restart": "restarts the driver",
    "refused": "is refused",
}


@dataclass(frozen=True)
class FieldChange:
    field: str
    effect: Effect
    reason: str = ""


@dataclass(frozen=True)
class TableChange:
    table: str
    effect: TableEffect
    reason: str
    fix: str = ""


@dataclass(frozen=True)
class SpecDifference:
    fields: tuple[FieldChange, ...]
    tables: tuple[TableChange, ...]
    unconfirmed: RemovalUnconfirmed | None = None
    """The refusal of a change that drops most tables."""

    @property
    def needed(self) -> Literal["nothing", "reload", "restart", "refused"]:
        """The step that puts the change into effect."""
        effects = {change.effect for change in self.fields}
        if "refused" in effects or self.unconfirmed is not None:
            return "refused"
        return "restart" if "restart" in effects else "reload" if effects else "nothing"

    def document(self) -> dict[str, Any]:
        refused = self.unconfirmed
        return {
            "needed": self.needed,
            "refusal": None
            if refused is None
            else {"error": refused.name, "message": refused.message, "fix": refused.fix},
            "fields": [{"field": f.field, "effect": f.effect, "reason": f.reason} for f in self.fields],
            "tables": [{"table": t.table, "effect": t.effect, "reason": t.reason, "fix": t.fix} for t in self.tables],
        }

    def lines(self) -> Iterator[str]:
        width = max((len(change.field) for change in self.fields), default=0)
        for field in self.fields:
            why = f": {field.reason}" if field.reason else ""
            yield visible(f"{field.field:{width}}  {_FIELDS[field.effect]}{why}")
        for table in self.tables:
            yield visible(f"table {table.table}: {table.reason}")
            if table.fix:
                yield visible(f"     fix: {table.fix}")
        if self.unconfirmed is not None:
            yield visible(f"{self.unconfirmed.name}: {self.unconfirmed.message}")
            yield visible(f"     fix: {self.unconfirmed.fix}")
        yield {
            "nothing": "nothing changes",
            "reload": "no restart needed: `tailrace reload -f <manifest>`; in Kubernetes `kubectl apply`",
            "restart": "the driver restarts: stop `tailrace run` and start it again; in Kubernetes `kubectl apply`",
            "refused": "this Replicator cannot be changed in this way",
        }[self.needed]


def compare(old: Replicator, new: Replicator, secrets: Path | None) -> SpecDifference:
    before, after = old.spec, new.spec
    names = differences(before, after)
    fields = tuple(FieldChange(name, effect(name), refusal(name) or "") for name in names)
    found = SpecDifference(fields, ())
    formed = of_chunks(before) != of_chunks(after) or before.mask_key != after.mask_key
    if not formed or found.needed == "refused":
        return found
    with Places(before, "tailrace diff", secrets).source.session() as session:
        masks.configure(before, secrets)
        was = {table.name: table for table in session.tables(before.read_tables, before.read_options)}
        masks.configure(after, secrets)
        now = {table.name: table for table in session.tables(after.read_tables, after.read_options)}
        return SpecDifference(
            fields, tuple(table_changes(session, after, was, now)), unconfirmed(after.tables, was.values())
        )


def unconfirmed(after: TablesSpec, was: Iterable[Table]) -> RemovalUnconfirmed | None:
    before = {(table.schema.schema_name, table.schema.table_name): table.stop is None for table in was}
    try:
        removals.require_confirmed(after, before)
    except RemovalUnconfirmed as refusal:
        return refusal
    return None


def table_changes(
    session: Session, after: ReplicatorSpec, was: Mapping[str, Table], now: Mapping[str, Table]
) -> Iterator[TableChange]:
    """The changes by table name. A table that could not be captured before counts as not selected."""
    captured = {name for name, table in was.items() if table.stop is None}
    for name in sorted(captured | now.keys()):
        table = now.get(name)
        if table is None:
            yield TableChange(name, "released", "is no longer captured; its copy stays and is no longer updated")
        elif name in captured:
            yield from _continued(session, after, was[name], table)
        elif table.stop is None:
            unread = "its rows are not read (snapshot.initial), unless it was captured before"
            read = "all rows are read" if after.snapshot.initial else unread
            yield TableChange(name, "captured", f"is captured; {read}")
        elif name not in was:
            what = f"is selected and cannot be captured: {table.stop.message}"
            yield TableChange(name, "stops", what, table.stop.fix)


def _goes_on(was: TableSchema, now: TableSchema, after: ReplicatorSpec) -> bool:
    return evolves(now, after) and not is_kept(was, now)


def _continued(session: Session, after: ReplicatorSpec, was: Table, now: Table) -> Iterator[TableChange]:
    stop = session.unfollowed(was, now)
    known = {column.id for column in was.schema.columns}
    added = [column.name for column in now.schema.columns if column.id not in known]
    if stop is None and added:
        yield TableChange(now.name, "readAgain", f"all rows are read again, for the columns {', '.join(added)}")
    elif stop is not None and now.stop is None and _goes_on(was.schema, now.schema, after):
        how = "starts over by itself and all rows are read into a new copy, unless it can be followed in place"
        if hides(was.schema, now.schema) or not known <= {column.id for column in now.schema.columns}:
            how = "starts over by itself: since it shows what is to be hidden, it is emptied at once; all rows are read"
        yield TableChange(now.name, "startsOver", f"{how} (onSchemaChange: Evolve): {stop.message}")
    elif stop is not None:
        yield TableChange(now.name, "stops", f"stops: {stop.message}", stop.fix)
