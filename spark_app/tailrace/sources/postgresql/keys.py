"""SQL about keys: order, ranges, lists and their text. Pure composition; the database does every comparison. Keys
come in as the change log has them (`key_text`).

Called by `chunks`. Operators come from the key's own index and are written with their schema, because the session's
search path holds only pg_catalog: there `citext > citext` would quietly become `text > text`, an order that is not the
index's, and rows would fall between chunks.
"""

from collections.abc import Callable, Sequence

from psycopg import sql

from tailrace.changelog.records.terms import Key
from tailrace.errors import Retry
from tailrace.sources.postgresql.key_text import server_text
from tailrace.sources.postgresql.model import CatalogColumn, Operators, PgTable

_Pick = Callable[[Operators], tuple[str, str]]


def column_text(column: CatalogColumn) -> sql.Composable:
    """The text of the server's log: by the type's output function, not by a cast (bool: `t`, bpchar: padded)."""
    return sql.SQL("pg_catalog.textin({}({}))").format(sql.Identifier(*column.output), _undomained(column))


def _undomained(column: CatalogColumn) -> sql.Composable:
    value: sql.Composable = sql.Identifier("t", column.name)
    return sql.SQL("{}::{}").format(value, sql.Identifier(*column.base_type)) if column.domain else value


def column_binary(column: CatalogColumn) -> sql.Composable:
    """The value itself: COPY sends it in its type's binary form."""
    return _undomained(column)


def columns_text(columns: Sequence[CatalogColumn]) -> sql.Composable:
    return sql.SQL(", ").join(column_text(c) for c in columns)


def key_order(table: PgTable, descending: bool = False) -> sql.Composable:
    """ORDER BY list over `t`. Qualified columns: a bare name would mean an output column."""
    return sql.SQL(", ").join(_ordered(c, ops, descending) for c, ops in _key(table))


def _ordered(column: CatalogColumn, ops: Operators, descending: bool) -> sql.Composable:
    """The expression to sort by. For a domain over an enum (range, composite) it is the type's own order by its plain
    name: USING does not look through the domain, and cast to the base type the column would be sorted where the index
    has it in order."""
    if column.domain and column.base_type[0] != "pg_catalog" and ops.less == ("pg_catalog", "<"):
        named = sql.Identifier("t", column.name)
        return sql.SQL("{} DESC").format(named) if descending else named
    column_as_is = _collated(sql.Identifier("t", column.name), column)
    return sql.SQL("{} USING {}").format(column_as_is, _operator(ops.greater if descending else ops.less))


def in_range(table: PgTable, lower: Key | None, upper: Key | None) -> sql.Composable:
    """Condition for keys in (lower, upper]; None: open."""
    parts: list[sql.Composable] = []
    if lower is not None:
        parts.append(_beyond(table, lower, lambda o: o.greater, lambda o: o.at_least, lambda o: o.greater))
    if upper is not None:
        parts.append(_beyond(table, upper, lambda o: o.at_most, lambda o: o.at_most, lambda o: o.less))
    return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")


def in_list(table: PgTable, keys: Sequence[Key]) -> sql.Composable:
    """Condition for the keys given. A semi-join: keys that are equal in the database bring a row only once."""
    if not keys:
        return sql.SQL("false")
    pairs = _key(table)
    names = [f"k{i}" for i in range(len(pairs))]
    equal = sql.SQL(" AND ").join(
        sql.SQL("{} {} {}").format(_column(c), _operator(ops.equal), sql.Identifier("wanted", name))
        for (c, ops), name in zip(pairs, names, strict=True)
    )
    return sql.SQL("EXISTS (SELECT FROM {} WHERE {})").format(_values(table, keys, "wanted", names), equal)


def normal_statement(table: PgTable, keys: Sequence[Key]) -> sql.Composed:
    """Query for the keys (at least one) in the server's text: people write `01`, `yes` or `B4A9…`, too."""
    columns = table.key_columns
    listed = _values(table, keys, "t", [c.name for c in columns])
    return sql.SQL("SELECT {} FROM {}").format(columns_text(columns), listed)


def _values(table: PgTable, keys: Sequence[Key], alias: str, names: Sequence[str]) -> sql.Composable:
    rows = sql.SQL(", ").join(sql.SQL("({})").format(sql.SQL(", ").join(_literals(table, key))) for key in keys)
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    return sql.SQL("(VALUES {}) AS {}({})").format(rows, sql.Identifier(alias), columns)


def _beyond(table: PgTable, key: Key, row: _Pick, first: _Pick, strict: _Pick) -> sql.Composable:
    """Compare the whole key: by row where one operator name serves all columns, else spelled out column by column."""
    pairs = _key(table)
    values = _literals(table, key)
    if len({row(ops) for _, ops in pairs}) == 1:
        left = sql.SQL(", ").join(_column(c) for c, _ in pairs)
        right = sql.SQL(", ").join(values)
        return sql.SQL("ROW({}) {} ROW({})").format(left, _operator(row(pairs[0][1])), right)
    last = len(pairs) - 1
    condition: sql.Composable = sql.SQL("")
    for i in range(last, -1, -1):
        (column, ops), value = pairs[i], values[i]
        if i == last:
            condition = sql.SQL("{} {} {}").format(_column(column), _operator(row(ops)), value)
            continue
        condition = sql.SQL("({c} {strict} {v} OR {c} {equal} {v} AND {rest})").format(
            c=_column(column), strict=_operator(strict(ops)), v=value, equal=_operator(ops.equal), rest=condition
        )
    # The first column's bound alone: what the index can start from.
    bound = sql.SQL("{} {} {}").format(_column(pairs[0][0]), _operator(first(pairs[0][1])), values[0])
    return sql.SQL("{} AND {}").format(bound, condition)


def _key(table: PgTable) -> list[tuple[CatalogColumn, Operators]]:
    pairs = [(c, c.operators) for c in table.key_columns if c.operators is not None]
    if not pairs:
        raise ValueError(f"{table.name} has no key")
    return [(c, ops) for c, ops in pairs if ops is not None]


def _column(column: CatalogColumn) -> sql.Composable:
    """The column in the form that the operators take: those of enums do not look through a domain. The index serves a
    relabelled column, too, and a collation survives the cast."""
    return _collated(_undomained(column), column)


def _collated(value: sql.Composable, column: CatalogColumn) -> sql.Composable:
    if column.collation is None:
        return value
    return sql.SQL("{} COLLATE {}").format(value, sql.Identifier(*column.collation))


def _operator(operator: tuple[str, str]) -> sql.Composable:
    schema, name = operator
    return sql.SQL("OPERATOR({}.").format(sql.Identifier(schema)) + sql.SQL(name + ")")


def _literals(table: PgTable, key: Key) -> list[sql.Composable]:
    """Typed without a length: `'…'::pg_catalog.bpchar`, not `character(1)`, which would cut."""
    columns = table.key_columns
    if len(key) != len(columns):
        # The catalog is ahead of the log, or the other way round: the next look of capture's decides.
        raise Retry(f"the key of {table.name} has {len(columns)} columns now, not {len(key)}")
    return [
        sql.SQL("{}::{}").format(sql.Literal(server_text(c, value)), sql.Identifier(*c.base_type))
        for c, value in zip(columns, key, strict=True)
    ]
