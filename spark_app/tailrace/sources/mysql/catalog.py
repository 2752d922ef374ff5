"""Discovery: the tables that patterns select, with their columns, keys and logical types, from information_schema.

Called by the log (at start and when it looks for schema changes), by the chunk reader (is it still the same table?) and
by preflight. MySQL's tables and columns are known by their names (`model.number_of`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pymysql

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import TableOptions, TablesSpec
from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, execute, rows
from tailrace.errors import NoKey, ReadRefused, TableStop
from tailrace.selection import as_types, filters, masks
from tailrace.sources import patterns
from tailrace.sources.mysql import charsets, refused_keys, sql, types
from tailrace.sources.mysql.generated import is_generated, of_session
from tailrace.sources.mysql.merges import note_merges
from tailrace.sources.mysql.model import MysqlColumn, MysqlTable, identity, number_of, quoted
from tailrace.sources.mysql.types import ColumnType, Form
from tailrace.sources.patterns import options_of, selected
from tailrace.sources.stops import reserved
from tailrace.sources.unrepresentable import sets_null

Row = dict[str, Any]
_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
TRANSACTIONAL = frozenset(("InnoDB", "ROCKSDB"))
ENGINES = TRANSACTIONAL | {"MyISAM", "Aria"}
"""The engines whose changes are in the log and whose rows outlive a restart."""
PRIMARY = "PRIMARY"
"""The index of every primary key."""
_TABLES = """
SELECT table_schema, table_name, engine, table_type FROM information_schema.tables
 WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {} ORDER BY table_schema, table_name
"""
_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, numeric_precision, numeric_scale,
       datetime_precision, character_octet_length, character_set_name, collation_name, extra, generation_expression,
       VERSION() LIKE '%MariaDB%' AS mariadb
  FROM information_schema.columns WHERE {} ORDER BY table_schema, table_name, ordinal_position
"""
_INDEXES = """
SELECT * FROM information_schema.statistics WHERE non_unique = 0 AND {}
 ORDER BY table_schema, table_name, index_name, seq_in_index
"""
"""All columns: MySQL has `is_visible`, MariaDB from 10.6 on `ignored`."""


def discover(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions] = ()
) -> tuple[MysqlTable, ...]:
    """The tables that the patterns select now, ordered by name. What cannot be captured carries its `stop`."""
    everything = _tables(connection)
    found = [r for r in everything if selected(tables, r["table_schema"], r["table_name"])]
    note_merges(connection, found, everything)
    return _with_columns(connection, found, options)


def table_by_id(connection: Connection, table_id: int, options: Sequence[TableOptions] = ()) -> MysqlTable | None:
    """The table with this number; None: there is none, or no longer."""
    everything = _tables(connection)
    found = [r for r in everything if number_of(_identity(r)) == table_id]
    note_merges(connection, found, everything)
    return next(iter(_with_columns(connection, found, options)), None)


def table_by_name(connection: Connection, schema: str, table: str, options: TableOptions | None) -> MysqlTable | None:
    """The table of this name, with these very options."""
    wanted = identity(schema, table)
    found = [r for r in rows(connection, _TABLES.format(_where([schema], [table]))) if _identity(r) == wanted]
    return next(iter(_with_columns(connection, found, (), options)), None)


def hidden(connection: Connection, schema: str, table: str) -> bool:
    """True if the user has no right on the table, which the server then leaves out of its catalog as if it did not
    exist."""
    try:
        execute(connection, f"SELECT 1 FROM {quoted(schema)}.{quoted(table)} LIMIT 0")
    except pymysql.MySQLError as error:
        if faults.kind(error) not in ("right", "gone"):
            raise
        return faults.kind(error) == "right"
    return False


def of_other_case(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions], found: Iterable[MysqlTable]
) -> list[str]:
    """Sentences about patterns whose case is not the catalog's."""
    names = [(t.schema_name, t.table_name) for t in found]
    return patterns.of_other_case(
        tables, options, names, lambda: [(r["table_schema"], r["table_name"]) for r in _tables(connection)]
    )


def _tables(connection: Connection) -> list[Row]:
    return rows(connection, _TABLES.format(f"table_schema NOT IN {sql.listed(list(_SYSTEM))}"))


def _where(schemas: list[str], names: list[str]) -> str:
    """A table or a few are looked up by name; of more, all of their databases are read."""
    condition = f"table_schema IN {sql.listed(schemas)}"
    return f"{condition} AND table_name IN {sql.listed(names)}" if len(names) <= 100 else condition


def _identity(row: Row) -> str:
    return identity(row["table_schema"], row["table_name"])


def _with_columns(
    connection: Connection, found: list[Row], options: Sequence[TableOptions], given: TableOptions | None = None
) -> tuple[MysqlTable, ...]:
    if not found:
        return ()
    where = _where(sorted({r["table_schema"] for r in found}), sorted({r["table_name"] for r in found}))
    columns = _by_table(rows(connection, _COLUMNS.format(where)))
    indexes = _by_table(rows(connection, _INDEXES.format(where)))
    return tuple(
        _table(
            row,
            columns.get(_identity(row), []),
            indexes.get(_identity(row), []),
            given or options_of(options, row["table_schema"], row["table_name"]),
        )
        for row in found
    )


def _by_table(found: Iterable[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in found:
        tables.setdefault(_identity(row), []).append(row)
    return tables


def _table(row: Row, found: list[Row], indexes: list[Row], options: TableOptions | None) -> MysqlTable:
    name = f"{row['table_schema']}.{row['table_name']}"
    index, key = _key(found, indexes)
    unsteady = set() if any(c["mariadb"] for c in found) else of_session(found)
    columns = tuple(_column(c, key, options, c["column_name"] in unsteady) for c in found)
    schema, refused = filters.filtered(
        TableSchema(
            table_id=number_of(_identity(row)),
            schema_name=row["table_schema"],
            table_name=row["table_name"],
            version=0,
            columns=tuple(_record(c) for c in columns if c.copied),
        ),
        options,
        texts=[c.name for c in columns if c.native == "string" and types.is_text(c.type)],
        uuids=[c.name for c in columns if c.type.name == "uuid"],
    )
    return MysqlTable(
        schema_name=row["table_schema"],
        table_name=row["table_name"],
        columns=columns,
        key_index=index,
        schema=schema,
        stop=_stop(name, row, columns, options) or masks.of_key(schema) or refused or reserved(schema),
        engine=row["engine"],
        options=options,
        alone={part["index_name"] for part in indexes} == {index},
    )


def _key(columns: list[Row], indexes: list[Row]) -> tuple[str, list[str]]:
    """The index that names the rows, and its columns: the primary key, else a unique index over columns that are never
    NULL, the shortest. A prefix of a column would not do: two rows may have equal ones in a unique index of another.
    Nor would MariaDB's hashes of longer texts than it sorts by."""
    computed = {c["column_name"] for c in columns if is_generated(c)}
    long = {c["column_name"] for c in columns if (c["character_octet_length"] or 0) > refused_keys.MOST_SORTED}
    unique: dict[str, list[Row]] = {}
    for part in indexes:
        unique.setdefault(part["index_name"], []).append(part)
    fit = [
        (name != PRIMARY, len(parts), name)
        for name, parts in unique.items()
        if all(p["column_name"] and p["nullable"] != "YES" and p["column_name"] not in computed for p in parts)
        and (name == PRIMARY or all(p["sub_part"] is None and _is_used(p) for p in parts))
        and not any(p.get("index_type") == "HASH" and p["column_name"] in long for p in parts)
    ]
    if not fit:
        return "", []
    chosen = min(fit)[2]
    return chosen, [p["column_name"] for p in unique[chosen]]


def _is_used(part: Row) -> bool:
    """An index that the server keeps and does not use cannot be read along."""
    return bool(part.get("is_visible", "YES") == "YES" and part.get("ignored", "NO") == "NO")


def _column(row: Row, key: list[str], options: TableOptions | None, of_session: bool) -> MysqlColumn:
    kind = ColumnType(
        name=row["data_type"].lower(),
        text=row["column_type"],
        precision=row["numeric_precision"],
        scale=row["numeric_scale"],
        fraction=row["datetime_precision"] or 0,
        length=row["character_octet_length"],
        charset=row["character_set_name"],
    )
    name, native = row["column_name"], types.logical(kind)
    mask = masks.mask_of(options, name)
    requested = as_types.requested(options, name) if mask is None else "string"
    whole, filtering = options is not None and options.whole, name in filters.named(options)
    own = types.own(kind, row["collation_name"]) if whole and requested is None else None
    if own is not None and native in types.LIMITS and not filtering:
        requested = "string"
    kept = options is None or options.columns is None or name in options.columns
    nulls = sets_null(options)
    # MySQL's log has computed columns like others. MariaDB's has them in inserted rows; since 11.8.9 in no others.
    logged = not (is_generated(row) and row["mariadb"]) and not of_session
    return MysqlColumn(
        name=name,
        type=kind,
        form=Form(requested or native or "string", kind.fraction, nulls and name not in key),
        native=native,
        nullable=row["is_nullable"] == "YES",
        key=key.index(name) if name in key else None,
        generated=is_generated(row),
        # A target of the same product computes it itself.
        copied=logged and (kept or name in key) and (filtering or not (whole and is_generated(row))),
        mask=mask,
        own=own,
        of_session=of_session,
    )


def unsupported(column: MysqlColumn) -> tuple[str, str] | None:
    """A feature of the column for which no value can be copied, and the fix; None: there is none."""
    if column.native is None:
        return f"the type {column.type.text}, which is not supported", "Leave the column out with options[].columns."
    if column.type.charset not in (None, *charsets.KNOWN):
        what = f"the character set {column.type.charset}, which is not supported"
        return what, "Convert the column to utf8mb4, or leave it out with options[].columns."
    others, key = types.OTHERS.get(column.type.name, ()), column.key is not None
    if not as_types.allowed(column.form.logical, column.native, () if key else others):
        in_key = as_types.allowed(column.form.logical, column.native, others)
        why = f"which {'its key' if in_key else f'the type {column.type.text}'} does not allow"
        return f"{as_types.named(column.form.logical)} in options[].as, {why}", as_types.way_out(column.name)
    return None


def _record(column: MysqlColumn) -> Column:
    return Column(
        name=column.name,
        id=column.id,
        source_type=column.type.text,
        type=column.form.logical,
        nullable=column.nullable,
        key=column.key,
        mask=column.mask,
        behind=column.own,
    )


def _stop(name: str, row: Row, columns: Sequence[MysqlColumn], options: TableOptions | None) -> TableStop | None:
    if row["table_type"] == "SYSTEM VERSIONED":
        return ReadRefused(
            name,
            f"{name} is system-versioned: its log does not tell old versions of rows from present ones",
            f"Exclude {name}.",
        )
    if row["engine"] not in ENGINES:
        what = f"{name} has the storage engine {row['engine']}, whose changes cannot be captured"
        return ReadRefused(name, what, "Convert the table to InnoDB, or exclude it.")
    if row.get("merged"):
        what = f"{name} is a part of the MERGE table {row['merged']}: rows that are written there miss its log"
        return ReadRefused(name, what, f"Drop {row['merged']}, convert {name} to InnoDB, or exclude it.")
    table = f"{quoted(row['table_schema'])}.{quoted(row['table_name'])}"
    if not any(c.key is not None for c in columns):
        what = f"{name} has no primary key and no unique index over NOT NULL columns that can stand in for it"
        return NoKey(name, what, f"Run ALTER TABLE {table} ADD PRIMARY KEY (…).")
    unreadable = [(c, fix) for c in columns for end, fix in types.UNREADABLE.items() if c.type.text.endswith(end)]
    if unreadable:  # also where it is not copied: nothing that stands behind it in a row could be found
        column, fix = unreadable[0]
        what = f"column {column.name!r} of {name} is {column.type.text}, which cannot be read from the log"
        return ReadRefused(name, what, f"{fix.format(table)}; or exclude {name}.")
    for column, found in ((c, unsupported(c)) for c in columns if c.copied):
        if found is not None:
            return ReadRefused(name, f"column {column.name!r} of {name} has {found[0]}", found[1])
    return refused_keys.refused(name, columns) or masks.misnamed(name, options, {c.name for c in columns})
