"""The form in which each column of a table will be copied, determined in advance: for `tailrace doctor`. No I/O but for
the sizes.

Types and limits are those of `types`, of which the catalog and docs/types.md are made, too.
"""

from collections.abc import Mapping, Sequence

from tailrace.databases.mysql.connect import Connection, execute, rows, server_of, source_errors
from tailrace.selection import as_types
from tailrace.sources.findings import ColumnSupport, TableSize, TableSupport
from tailrace.sources.mysql import sql, types
from tailrace.sources.mysql.catalog import unsupported
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, identity
from tailrace.sources.unrepresentable import limited

_SIZES = "SELECT table_schema, table_name, table_rows, data_length FROM information_schema.tables WHERE {}"
_ELSEWHERE = "Compute it in the target, or in a view over it."
_UNLOGGED = "MariaDB does not log generated columns with every change", _ELSEWHERE
_IN_TARGET = (
    "a generated column: the target computes it",
    "Add it to the copy, if it is needed there.",
)
_OF_SESSION = (
    "a virtual column whose value depends on the time zone or the language of the session that computes it",
    f"Replace it by one that is STORED. {_ELSEWHERE.replace('Compute', 'Or compute')}",
)


def describe(table: MysqlTable, size: TableSize) -> TableSupport:
    wanted = None if table.options is None else table.options.columns
    whole = table.options is not None and table.options.whole
    found = tuple(_column(c) if c.copied else _not_copied(c, wanted, whole) for c in table.columns)
    return TableSupport(table.schema, found, size, table.stop is not None)


def _not_copied(column: MysqlColumn, wanted: Sequence[str] | None, whole: bool) -> ColumnSupport:
    unlogged = column.generated and (wanted is None or column.name in wanted)
    if unlogged and whole:  # what a copy lacks of such columns, doctor and cutover say by the statement that adds them
        return ColumnSupport(column.name, column.type.text, None, "PARTIAL", *_IN_TARGET)
    computed = _OF_SESSION if column.of_session else _UNLOGGED
    why = computed if unlogged else ("left out by options[].columns", "")
    return ColumnSupport(column.name, column.type.text, None, "NO", *why)


def _column(column: MysqlColumn) -> ColumnSupport:
    stop = unsupported(column)
    if stop is not None:
        return ColumnSupport(column.name, column.type.text, None, "NO", *stop)
    if column.own is not None:
        return ColumnSupport(column.name, column.type.text, column.type.text, "YES")
    known = column.name, column.type.text, column.form.logical
    if column.mask is not None:
        return ColumnSupport(*known, "YES", f"masked: {column.mask}")
    changed, limit = _loss(column) if column.other_number else ("", types.LIMITS.get(column.form.logical, ""))
    if changed or limit:
        reason, suggestion = limited(limit, column.key is not None, column.form.sets_null)
        return ColumnSupport(*known, "PARTIAL", "; ".join(filter(None, (changed, reason))), suggestion)
    form = types.as_other(column.type, column.form.logical)
    if form is not None:
        return ColumnSupport(*known, "PARTIAL", f"becomes {_KINDS[column.form.logical]}: {form}")
    return ColumnSupport(*known, "YES")


def _loss(column: MysqlColumn) -> tuple[str, str]:
    """The loss of numbers that become other ones (`as`)."""
    kind = column.type
    digits = f"decimal({kind.precision},{kind.scale or 0})" if kind.name == "decimal" else str(column.native)
    return as_types.loss(column.form.logical, digits, finite=True)


_KINDS = {"string": "text", "binary": "bytes"}


def sizes(connection: Connection, tables: Sequence[MysqlTable]) -> Mapping[str, TableSize]:
    """The sizes by the table's `identity`. MySQL keeps such estimates for a day, unless a session asks for new ones; it
    writes them down, so that looking would change something."""
    if not tables:
        return {}
    with source_errors("looking at the sizes of tables"):
        if server_of(connection).product == "mysql":
            execute(connection, "SET SESSION information_schema_stats_expiry = 0")
        where = f"table_schema IN {sql.listed(sorted({t.schema_name for t in tables}))}"
        if len(tables) == 1:
            where += f" AND table_name IN {sql.listed([tables[0].table_name])}"
        found = rows(connection, _SIZES.format(where))
    return {identity(r["table_schema"], r["table_name"]): TableSize(r["table_rows"], r["data_length"]) for r in found}
