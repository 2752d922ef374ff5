"""Columns that an ALTER TABLE adds, drops, renames or gives another type are followed in place: no row is read again
where log and catalog agree that nothing else has happened; of a column that is copied as another type, all are.

Pure; asked by `catalog_poll` behind the statement. The proof has two sides that must agree: the statement's text, and
the catalog behind it (docs/decisions/0085-columns-of-mysql-in-place.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.changelog.history import retyped
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.selection.filters import filter_columns
from tailrace.sources.mysql.log.statements import ColumnAction, NewType
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, number_in
from tailrace.sources.mysql.types import ColumnType

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_LENGTHS = ("varchar", "varbinary")


@dataclass(frozen=True)
class Step:
    """The table behind a statement."""

    schema: TableSchema
    """The version in force if no column that is copied is another one."""
    reread: bool
    additive: bool
    """No column was dropped, renamed or given another type in the copy."""
    retyped: bool = False
    """A column got a type that a history cannot follow (`changelog.history.retyped`)."""


@dataclass(frozen=True)
class _Origin:
    """The former state of a column of the table as it is now."""

    column: MysqlColumn | None
    """None: it is new."""
    type: NewType | None = None
    """The statement's; None: it gives it none."""
    fills: bool = False

    def is_left(self, name: str) -> bool:
        """The statement does nothing to it."""
        return self.type is None and self.column is not None and self.column.name == name


def step(schema: TableSchema, before: MysqlTable, now: MysqlTable, actions: Sequence[ColumnAction]) -> Step | None:
    """None: more may have happened than the statement says, or something that cannot be followed in place. `before`:
    the table as it was known with the version in force, which is `schema`; `now`: the catalog's."""
    origins = _origins(before, now, actions)
    if origins is None or now.stop is not None or now.schema.choice != schema.choice:
        return None
    known = {c.name: c for c in schema.columns}
    if {c.name for c in before.columns if c.copied} != known.keys():
        return None
    held = {c.name for c in schema.key_columns} | filter_columns(schema)
    if any(name not in origins or not origins[name].is_left(name) for name in held):
        return None
    typed = any(origin.type is not None for origin in origins.values())
    if typed and any(c.generated for c in now.columns):
        return None  # it may have other values by it
    there = {c.name: c for c in now.schema.columns}
    kept, added, reread, lost = dict[str, Column](), list[Column](), False, False
    for column in now.columns:
        origin = origins[column.name]
        if origin.column is None:
            if column.generated or column.key is not None:
                return None
            if column.copied:
                number = number_in(column.name, schema.version + 1)
                added.append(there[column.name].model_copy(update={"id": number}))
                reread |= origin.fills
            continue
        found = _followed(origin, column)
        if found is None:
            return None
        if column.copied:
            was, fresh = known[origin.column.name], found == _ANOTHER
            number = number_in(column.name, schema.version + 1) if fresh else was.id
            kept[was.name] = there[column.name].model_copy(update={"id": number})
            reread |= found != _SAME
            lost |= retyped(was, there[column.name])
    columns = (*(kept[c.name] for c in schema.columns if c.name in kept), *added)
    if columns == schema.columns:
        return Step(schema, reread, additive=True, retyped=lost)
    remain = {(c.id, c.name) for c in columns}
    additive = all((c.id, c.name) in remain for c in schema.columns)
    return Step(schema.model_copy(update={"version": schema.version + 1, "columns": columns}), reread, additive, lost)


def _origins(before: MysqlTable, now: MysqlTable, actions: Sequence[ColumnAction]) -> Mapping[str, _Origin] | None:
    """The former state of each column that the catalog has now. None: these are not the ones that the statement left.
    A server takes names for those of the table as it was before the statement, whatever case they are in."""
    then = {c.name: _Origin(c) for c in before.columns}
    others = {name.lower(): name for name in then if name.isascii()}
    left, moved = dict(then), list[tuple[str, _Origin]]()
    for action in actions:
        origin, after = _Origin(None, fills=action.fills), action.after
        if action.before is not None:
            name = action.before if action.before in then else others.get(action.before.lower())
            if name is None and action.if_there and action.before.isascii():
                continue
            if name is None or name not in left:
                return None
            origin = replace(left.pop(name), type=action.type)
            if after is not None and after != name and after.lower() == name.lower():
                return None  # readers of a copy may not tell names by their case
        if after is not None:
            moved.append((after, origin))
    result = [*left.items(), *moved]
    if not actions or len({name.lower() for name, _ in result}) < len(result):
        return None
    return dict(result) if {name for name, _ in result} == {c.name for c in now.columns} else None


def alike(one: MysqlTable, other: MysqlTable) -> bool:
    """They have the same columns."""
    forms = ({c.name: _plain(c.type) for c in table.columns} for table in (one, other))
    return next(forms) == next(forms)


_SAME, _UNSURE, _ANOTHER = "same", "unsure", "another"
"""A column's values are what they were; they may be others; it is another one in the copy."""


def _followed(origin: _Origin, now: MysqlColumn) -> str | None:
    """None: it is not what the statement says, or more."""
    was = origin.column
    assert was is not None, "a new column has not been another one"
    if (was.copied, was.key, was.mask) != (now.copied, now.key, now.mask):
        return None
    same = _plain(was.type) == _plain(now.type)
    if origin.type is None:
        fits = same and (not now.copied or (was.form, was.nullable) == (now.form, now.nullable))
        return _SAME if fits else None
    if not now.copied:
        return _SAME
    if was.form.logical != now.form.logical:
        return None if same else _ANOTHER
    keeps = was.form == now.form and was.nullable <= now.nullable
    if keeps and _is(origin.type, now.type) and _is_wider(was.type, now.type):
        return _SAME
    if was.name == now.name:
        return None  # nothing shows that the catalog has the statement already
    return _SAME if keeps and same and _sure(now.type) else _UNSURE


def _plain(type: ColumnType) -> ColumnType:
    return replace(type, logged=())


def _sure(type: ColumnType) -> bool:
    """A `?` in a label may stand for another character."""
    return type.name not in ("enum", "set") or "?" not in "".join(_plain(type).labels)


def _is_wider(old: ColumnType, new: ColumnType) -> bool:
    if old.name in _INTEGERS and new.name in _INTEGERS:
        same = old.unsigned == new.unsigned and not (old.zerofill or new.zerofill)
        return same and _INTEGERS.index(old.name) < _INTEGERS.index(new.name)
    if old.name != new.name or old.charset != new.charset:
        return False
    if new.name == "enum":
        known = _plain(old).labels
        return _sure(old) and known == new.labels[: len(known)] and len(known) < len(new.labels)
    return new.name in _LENGTHS and (old.length or 0) < (new.length or 0)


def _is(stated: NewType, type: ColumnType) -> bool:
    """The catalog shows what the statement says: not what the table was before it."""
    if type.name == "enum":
        return stated == NewType("enum", len(type.labels))
    if type.name in _LENGTHS:
        return stated == NewType(type.name, int(type.text[len(type.name) + 1 : -1]))
    return stated == NewType(f"u{type.name}" if type.unsigned else type.name)
