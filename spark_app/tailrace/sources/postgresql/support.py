"""The form in which each column of a table will be copied, determined in advance: for `tailrace doctor`. No I/O.

Types and limits are those of `types`, of which the catalog and docs/types.md are made, too.
"""

from collections.abc import Sequence

from tailrace.changelog.types import element_of, inner_types
from tailrace.errors import TableStop
from tailrace.selection import as_types
from tailrace.sources.findings import ColumnSupport, TableSize, TableSupport
from tailrace.sources.postgresql import types
from tailrace.sources.postgresql.model import CatalogColumn, PgTable
from tailrace.sources.unrepresentable import RARE, limited, sets_null

_GENERATED = ("generated columns are not in the log", "Compute them in the target, or in a view over it.")
_IN_TARGET = ("a generated column: the target computes it", "Add it to the copy, if it is needed there.")


def describe(table: PgTable, size: TableSize, checks_text: bool) -> TableSupport:
    """`checks_text`: the database's encoding is a real one, so that each text is valid in it."""
    copied = tuple(_column(c, table, checks_text) for c in table.columns)
    computed = tuple(_computed(name, table) for name in table.generated)
    left_out = sorted(set(table.names.values()) - {c.name for c in table.columns})
    excluded = tuple(ColumnSupport(name, None, None, "NO", "left out by options[].columns") for name in left_out)
    return TableSupport(table.schema, copied + computed + excluded, size, table.stop is not None)


def _computed(name: str, table: PgTable) -> ColumnSupport:
    if table.options is not None and table.options.whole:
        # What a copy lacks of such columns, doctor and cutover say by the statement that adds them.
        return ColumnSupport(name, None, None, "PARTIAL", *_IN_TARGET)
    return ColumnSupport(name, None, None, "NO", *_GENERATED)


def _column(column: CatalogColumn, table: PgTable, checks_text: bool) -> ColumnSupport:
    known, nulls = (column.name, column.source_type, column.logical), sets_null(table.options)
    if column.mask is not None:
        return ColumnSupport(*known, "YES", f"masked: {column.mask}")
    refused = unfit_type(table.name, column)
    if refused is not None:
        return ColumnSupport(column.name, column.source_type, None, "NO", refused.message, refused.fix)
    changed, limit = _loss(column)
    if changed or limit:
        reason, suggestion = limited(limit, column.key is not None, nulls)
        return ColumnSupport(*known, "PARTIAL", "; ".join(filter(None, (changed, reason))), suggestion)
    if column.logical != "string":
        return ColumnSupport(*known, "YES")
    reason = "" if is_text(column) else f"becomes text: {types.AS_TEXT}"
    if reason and table.options is not None and table.options.whole:
        if types.is_known_everywhere(*column.base_type):
            return ColumnSupport(column.name, column.source_type, column.source_type, "YES")
        if column.base_type[0] != "pg_catalog":
            create = "Create the type in the target before the first snapshot."
            return ColumnSupport(*known, "PARTIAL", types.AS_TEXT_ELSEWHERE, create)
    if checks_text:
        return ColumnSupport(*known, "PARTIAL" if reason else "YES", reason)
    unchecked, suggestion = limited(types.NOT_UTF8, column.key is not None, nulls, RARE)
    return ColumnSupport(*known, "PARTIAL", "; ".join(filter(None, (reason, unchecked))), suggestion)


def unfit_type(table: str, column: CatalogColumn) -> TableStop | None:
    """`options[].as` asks for what the column's type does not allow."""
    others = _others(column)
    if as_types.allowed(column.logical, column.native, [o for o in others if column.key is None or o in types.IN_KEYS]):
        return None
    why = ", and it is part of the key" if as_types.allowed(column.logical, column.native, others) else ""
    return as_types.refused(table, column.name, column.source_type, column.logical, why)


def _others(column: CatalogColumn) -> Sequence[str]:
    schema, name = column.base_type
    if column.nested is not None:
        return (as_types.named(column.nested),)
    return types.OTHERS.get(name, ()) if schema == "pg_catalog" else ()


def _loss(column: CatalogColumn) -> tuple[str, str]:
    """How its logical type changes values, and which it cannot hold."""
    inner = inner_types(column.logical)
    if inner:
        own = types.LISTS if element_of(column.logical) is not None else ""
        return "", "; ".join(filter(None, dict.fromkeys((own, *map(types.limit, inner)))))
    if column.base_type[1] in types.NUMBERS and column.logical not in (column.native, "string"):
        return as_types.loss(column.logical, column.native)
    return "", types.limit(column.logical)


def is_text(column: CatalogColumn) -> bool:
    """Text in the source, too."""
    return column.base_type[1] in types.TEXT or column.output[1] == "enum_out"
