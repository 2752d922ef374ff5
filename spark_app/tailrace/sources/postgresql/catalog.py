"""Discovery: the tables that patterns select, with their columns, keys and logical types, from the system catalog.

Called by capture (at start and when it polls for schema changes), by the chunk reader (is it still the same table?) and
by preflight. Identity is oid and attnum, never a name.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psycopg
from psycopg import Cursor, sql
from psycopg.rows import DictRow, dict_row

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import struct_of
from tailrace.contract.resources import TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import NoKey, ReadRefused, TableStop
from tailrace.selection import as_types, filters, masks
from tailrace.sources import patterns
from tailrace.sources.patterns import options_of, selected
from tailrace.sources.postgresql import types, unreadable
from tailrace.sources.postgresql.model import CatalogColumn, Operators, PgTable
from tailrace.sources.postgresql.support import is_text, unfit_type
from tailrace.sources.postgresql.trees import NOTHING, Tree, Trees
from tailrace.sources.stops import reserved

_LOOKS = 5
"""Each sees what others had committed when it began."""
_REFUSED = ". While it is published PostgreSQL refuses its updates and deletes, so Tailrace's publication leaves it out"
_TABLES = """
SELECT c.oid::int8 AS oid, n.nspname, c.relname, c.relkind::text AS relkind, c.relreplident::text AS relreplident,
       c.relpersistence::text AS relpersistence, pg_get_userbyid(c.relowner) AS owner,
       c.relfilenode::int8 AS file, c.relnatts AS attributes
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
   AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' {only}
 ORDER BY n.nspname, c.relname
"""

# A key is an index that replica identity can use: the primary key (DEFAULT, FULL) or the index named (USING INDEX). A
# deferrable one may hold a value twice inside a transaction, so it identifies no row there.
_COLUMNS = """
WITH RECURSIVE wanted AS (SELECT c.oid, c.relreplident FROM pg_class c WHERE c.oid = ANY(%(oids)s::oid[])),
base AS (
  SELECT t.oid AS type, t.oid AS base, t.typbasetype AS next, t.typtypmod AS typmod FROM pg_type t
   WHERE t.oid IN (SELECT a.atttypid FROM pg_attribute a JOIN wanted w ON w.oid = a.attrelid)
  UNION ALL
  SELECT b.type, t.oid, t.typbasetype, CASE WHEN b.typmod >= 0 THEN b.typmod ELSE t.typtypmod END
    FROM base b JOIN pg_type t ON t.oid = b.next WHERE b.next <> 0),
part AS (
  SELECT t.typelem AS type FROM base b JOIN pg_type t ON t.oid = b.base WHERE b.next = 0
  UNION
  SELECT f.atttypid FROM base b JOIN pg_type t ON t.oid = b.base AND t.typtype = 'c'
    JOIN pg_attribute f ON f.attrelid = t.typrelid AND f.attnum > 0 WHERE b.next = 0),
part_base AS (
  SELECT t.oid AS type, t.oid AS base, t.typbasetype AS next, t.typtypmod AS typmod
    FROM pg_type t JOIN part ON part.type = t.oid
  UNION ALL
  SELECT b.type, t.oid, t.typbasetype, CASE WHEN b.typmod >= 0 THEN b.typmod ELSE t.typtypmod END
    FROM part_base b JOIN pg_type t ON t.oid = b.next WHERE b.next <> 0),
key AS (
  SELECT w.oid AS rel, k.attnum, k.position - 1 AS position, oc.opcfamily, oc.opcintype,
         i.indcollation[k.position - 1] AS coll
    FROM wanted w
    JOIN pg_index i ON i.indrelid = w.oid AND i.indisvalid AND i.indimmediate
     AND CASE w.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END,
    LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, position),
    pg_opclass oc
   WHERE w.relreplident <> 'n' AND k.position <= i.indnkeyatts AND oc.oid = i.indclass[k.position - 1])
SELECT a.attrelid::int8 AS oid, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod) AS source_type,
       bn.nspname AS base_schema, bt.typname AS base_name, b.base <> b.type AS domain,
       CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.typmod END AS typmod,
       format_type(b.base, CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.typmod END) AS type_behind,
       CASE WHEN el.oid IS NOT NULL THEN coalesce(ebt.typname, '') END AS element_name,
       CASE WHEN el.typtype = 'd' THEN eb.typmod WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.typmod END
         AS element_typmod,
       (SELECT jsonb_agg(jsonb_build_array(encode(convert_to(f.attname, 'SQL_ASCII'), 'hex'), coalesce(fbt.typname, ''),
                         CASE WHEN f.atttypmod >= 0 THEN f.atttypmod ELSE fb.typmod END) ORDER BY f.attnum)
          FROM pg_attribute f JOIN part_base fb ON fb.type = f.atttypid AND fb.next = 0
          LEFT JOIN pg_type fbt ON fbt.oid = fb.base AND fbt.typnamespace = 'pg_catalog'::regnamespace
         WHERE bt.typtype = 'c' AND p.proname = 'record_out' AND f.attrelid = bt.typrelid AND f.attnum > 0
           AND NOT f.attisdropped) AS fields,
       pn.nspname AS out_schema, p.proname AS out_name, a.attnotnull OR k.attnum IS NOT NULL AS attnotnull,
       a.attgenerated <> '' AS generated, a.attgenerated = 's' AS stored, a.atthasdef, a.atthasmissing, k.position,
       cn.nspname AS coll_schema, co.collname AS coll_name,
       (SELECT jsonb_object_agg(o.amopstrategy, jsonb_build_array(opn.nspname, op.oprname))
          FROM pg_amop o JOIN pg_operator op ON op.oid = o.amopopr JOIN pg_namespace opn ON opn.oid = op.oprnamespace
         WHERE o.amopfamily = k.opcfamily AND o.amoplefttype = k.opcintype AND o.amoprighttype = k.opcintype
           AND o.amoppurpose = 's') AS operators
  FROM pg_attribute a
  JOIN wanted w ON w.oid = a.attrelid
  JOIN base b ON b.type = a.atttypid AND b.next = 0
  JOIN pg_type bt ON bt.oid = b.base JOIN pg_namespace bn ON bn.oid = bt.typnamespace
  JOIN pg_proc p ON p.oid = bt.typoutput JOIN pg_namespace pn ON pn.oid = p.pronamespace
  LEFT JOIN pg_type el ON el.oid = bt.typelem AND el.typdelim = ',' AND p.proname = 'array_out'
  LEFT JOIN part_base eb ON eb.type = el.oid AND eb.next = 0
  LEFT JOIN pg_type ebt ON ebt.oid = eb.base AND ebt.typnamespace = 'pg_catalog'::regnamespace
  LEFT JOIN key k ON k.rel = a.attrelid AND k.attnum = a.attnum
  LEFT JOIN pg_collation co ON co.oid = k.coll AND k.coll <> a.attcollation
  LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
 WHERE a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""


def discover(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions] = (), trees: Trees | None = None
) -> tuple[PgTable, ...]:
    """The tables that the patterns select now, ordered by name. What cannot be captured carries its `stop`. `trees`:
    what an earlier look knows; a later one reads only those that may differ."""
    for _ in range(_LOOKS):
        with suppress(psycopg.errors.CharacterNotInRepertoire):  # a name came between two of the statements
            return _discover(connection, tables, options, trees or Trees())
    return _discover(connection, tables, options, trees or Trees())


def _discover(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions], trees: Trees
) -> tuple[PgTable, ...]:
    odd = unreadable.find(connection)
    others = sql.SQL("AND c.oid <> ALL({})").format(sql.Literal([t.oid for t in odd])) if odd else sql.SQL("")
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(sql.SQL(_TABLES).format(only=others)).fetchall()
        rows = [r for r in rows if selected(tables, r["nspname"], r["relname"])]
        found = _with_columns(cursor, rows, options, trees)
    return found + tuple(t for t in odd if selected(tables, t.schema_name, t.table_name))


def of_other_case(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions], found: Iterable[PgTable]
) -> list[str]:
    """Sentences about patterns whose case is not the catalog's."""
    names = [(t.schema_name, t.table_name) for t in found]
    return patterns.of_other_case(tables, options, names, lambda: _names(connection))


def _names(connection: Connection) -> list[tuple[str, str]]:
    """The names of all tables; none where the encoding of one cannot be read."""
    with suppress(psycopg.errors.CharacterNotInRepertoire), connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(sql.SQL(_TABLES).format(only=sql.SQL(""))).fetchall()
        return [(r["nspname"], r["relname"]) for r in rows]
    return []


def table_by_oid(connection: Connection, oid: int, options: Sequence[TableOptions] = ()) -> PgTable | None:
    """The table with this oid as the connection's transaction sees it; None: there is none, or no longer."""
    odd = next((t for t in unreadable.find(connection) if t.oid == oid), None)
    if odd is not None:
        return odd
    with connection.cursor(row_factory=dict_row) as cursor:
        only = sql.SQL("AND c.oid = {}::oid").format(sql.Literal(oid))
        rows = cursor.execute(sql.SQL(_TABLES).format(only=only)).fetchall()
        # The same statement for each of the many tables that a connection may look at.
        found = _with_columns(cursor, rows, options, Trees(), prepare=True)
    return found[0] if found else None


def _with_columns(
    cursor: Cursor[DictRow],
    rows: list[DictRow],
    options: Sequence[TableOptions],
    trees: Trees,
    *,
    prepare: bool = False,
) -> tuple[PgTable, ...]:
    oids = [r["oid"] for r in rows]
    columns: dict[int, list[DictRow]] = {oid: [] for oid in oids}
    for column in cursor.execute(_COLUMNS, {"oids": oids}, prepare=prepare).fetchall() if oids else ():
        columns[column["oid"]].append(column)
    roots = [r["oid"] for r in rows if r["relkind"] == "p"]
    found = trees.look(cursor.connection, roots)
    below = {oid: found.get(oid, NOTHING) for oid in roots}
    before, trees.tables = trees.tables, {}
    for row in rows:
        oid, own = row["oid"], options_of(options, row["nspname"], row["relname"])
        tree = below.get(oid)
        # The catalog's rows themselves would be kept for nothing else.
        made_of = hashlib.sha256(repr((row, columns[oid])).encode()).digest(), tree, own
        known = before.get(oid)
        same = known is not None and known[0] == made_of
        trees.tables[oid] = known if known and same else (made_of, _table(row, columns[oid], tree, own))
    return tuple(table for _, table in trees.tables.values())


def _table(row: DictRow, found: list[DictRow], below: Tree | None, options: TableOptions | None) -> PgTable:
    name = f"{row['nspname']}.{row['relname']}"
    if below is not None:
        found = [{**c, "atthasmissing": c["atthasmissing"] or c["attname"] in below.missing} for c in found]
    kept = [c for c in found if not c["generated"] and (c["position"] is not None or copied(c["attname"], options))]
    filtering = filters.named(options)
    columns = tuple(_column(c, options, c["attname"] in filtering) for c in kept)
    schema, refused = filters.filtered(
        TableSchema(
            table_id=row["oid"],
            schema_name=row["nspname"],
            table_name=row["relname"],
            version=0,
            columns=tuple(_record(c) for c in columns),
            keyless=_keyless(row, found),
        ),
        options,
        texts=[c.name for c in columns if is_text(c)],
        padded={c.name: c.padded for c in columns if c.padded is not None},
        uuids=[c.name for c in columns if c.base_type[1] == "uuid"],
    )
    return PgTable(
        oid=row["oid"],
        schema_name=row["nspname"],
        table_name=row["relname"],
        partitioned=row["relkind"] == "p",
        owner=row["owner"],
        storage=((row["oid"], row["file"]),) if below is None else below.storage,
        columns=columns,
        schema=schema,
        stop=_stop(name, row, found, options)
        or masks.of_key(schema)
        or _unfit_type(name, columns)
        or refused
        or _unfit_leaf(schema, below)
        or _unfit_keyless(schema)
        or reserved(schema),
        generated=tuple(c["attname"] for c in found if c["generated"]),
        names={c["attnum"]: c["attname"] for c in found if not c["generated"]},
        stored={c["attnum"]: c["attname"] for c in found if c["stored"]},
        whole_identity=_whole_identity(row, below),
        attributes=max(row["attributes"], *(c["attnum"] for c in found), 0),
        numbers=frozenset(c["attnum"] for c in found),
        options=options,
    )


def _whole_identity(row: DictRow, below: Tree | None) -> str | None:
    """Rows of a partitioned table are logged by the identity of their partition."""
    if below is not None:
        return next((name for shape, name in below.shapes.items() if shape.identity == "f"), None)
    return sql.Identifier(row["nspname"], row["relname"]).as_string(None) if row["relreplident"] == "f" else None


def copied(name: str, options: TableOptions | None) -> bool:
    return options is None or options.columns is None or name in options.columns


def _record(column: CatalogColumn) -> Column:
    return Column(
        name=column.name,
        id=column.attnum,
        source_type=column.source_type,
        type=column.logical,
        nullable=column.nullable,
        key=column.key,
        mask=column.mask,
        behind=column.behind,
    )


def _column(row: DictRow, options: TableOptions | None, filtering: bool) -> CatalogColumn:
    """`filtering`: its values decide which rows are copied, and are compared as what they are."""
    mask = masks.mask_of(options, row["attname"])
    nested = _nested(row)
    requested = as_types.requested(options, row["attname"], nested) if mask is None else "string"
    native = types.logical(row["base_schema"], row["base_name"], row["typmod"])
    whole = options is not None and options.whole
    if whole and requested is None and not filtering and types.limit(native):
        requested = "string"
    return CatalogColumn(
        name=row["attname"],
        attnum=row["attnum"],
        source_type=row["source_type"],
        behind=row["type_behind"] if whole and row["domain"] else None,
        base_type=(row["base_schema"], row["base_name"]),
        domain=row["domain"],
        output=(row["out_schema"], row["out_name"]),
        logical=requested or native,
        native=native,
        nested=nested,
        nullable=not row["attnotnull"],
        key=row["position"],
        operators=_operators(row["operators"]),
        collation=(row["coll_schema"], row["coll_name"]) if row["coll_name"] else None,
        has_default=row["atthasdef"],
        has_missing=row["atthasmissing"],
        mask=mask,
        padded=row["typmod"] - 4 if row["base_name"] == "bpchar" and row["typmod"] > 4 else None,
    )


def _nested(row: DictRow) -> str | None:
    """Types that are not built in have no name here: they become text."""
    if row["element_name"] is not None:
        return f"list<{types.logical('pg_catalog', row['element_name'], row['element_typmod'])}>"
    with suppress(UnicodeDecodeError):  # of a SQL_ASCII database: it can be copied as text only
        named = [(bytes.fromhex(name).decode(), kind, typmod) for name, kind, typmod in row["fields"] or ()]
        if named:
            return struct_of((name, types.logical("pg_catalog", kind, typmod)) for name, kind, typmod in named)
    return None


def _operators(found: dict[str, list[str]] | None) -> Operators | None:
    """B-tree strategies: 1 less, 2 at most, 3 equal, 4 at least, 5 greater."""
    if found is None:
        return None
    pairs = {int(strategy): (pair[0], pair[1]) for strategy, pair in found.items()}
    return Operators(pairs[1], pairs[2], pairs[3], pairs[4], pairs[5])


def _stop(name: str, row: DictRow, columns: Iterable[DictRow], options: TableOptions | None) -> TableStop | None:
    quoted = _quoted(row)
    if row["relpersistence"] == "u":
        return ReadRefused(
            name, f"{name} is unlogged: its changes are not in the log", f"Run `ALTER TABLE {quoted} SET LOGGED`."
        )
    key = [c for c in columns if c["position"] is not None]
    if any(c["generated"] for c in key) or not (key or _keyless(row, columns)):
        return NoKey(name, _no_key(name, row, bool(key)), _key_fix(quoted, row))
    return masks.misnamed(name, options, {c["attname"] for c in columns})


def _quoted(row: DictRow) -> str:
    return sql.Identifier(row["nspname"], row["relname"]).as_string(None)


def _unfit_type(table: str, columns: Iterable[CatalogColumn]) -> TableStop | None:
    return next(filter(None, (unfit_type(table, column) for column in columns)), None)


def _unfit_leaf(schema: TableSchema, below: Tree | None) -> TableStop | None:
    """A partition whose changes do not come, or do not say which row of the root they are about."""
    key = {c.name for c in schema.key_columns}
    for shape, name in below.shapes.items() if below is not None else ():
        if shape.relkind != "r":
            what = f"partition {name} of {schema.name} is a foreign table: its changes are not in the log"
            return ReadRefused(schema.name, what, f"Detach {name}, or exclude {schema.name}.")
        if shape.persistence == "u":
            what = f"partition {name} of {schema.name} is unlogged: its changes are not in the log"
            return ReadRefused(schema.name, what, f"Run `ALTER TABLE {name} SET LOGGED`.")
        if shape.identity == "n" or (shape.identity != "f" and shape.key != key):
            what = f"partition {name} has another replica identity than {schema.name}: its changes lack the key"
            fix = (
                f"Run `ALTER TABLE {name} REPLICA IDENTITY DEFAULT`, or `… REPLICA IDENTITY USING INDEX …` with an"
                f" index over {sorted(key)}."
            )
            return NoKey(schema.name, what, fix)
    return None


def _keyless(row: DictRow, columns: Iterable[DictRow]) -> bool:
    """True if rows are told apart by all their values, which the log then has of each old row. Not of partitioned
    tables: a partition that is made later has no REPLICA IDENTITY FULL of its own, and since it is published its
    updates would fail at the source."""
    whole = row["relreplident"] == "f" and row["relkind"] == "r"
    return whole and not any(c["position"] is not None for c in columns)


def _unfit_keyless(schema: TableSchema) -> ReadRefused | None:
    """A row that is nothing cannot be told apart."""
    if not schema.keyless or schema.columns:
        return None
    return ReadRefused(schema.name, f"{schema.name} has no columns to copy", "Add one, or exclude the table.")


def _no_key(name: str, row: DictRow, generated: bool) -> str:
    if generated:
        return f"{name} has a generated column in its key, and generated columns are not in the log"
    if row["relreplident"] == "n":
        return f"{name} has REPLICA IDENTITY NOTHING: its updates and deletes do not identify their row{_REFUSED}"
    if row["relreplident"] == "f":
        return f"{name} is partitioned and has no primary key: only of other tables rows are copied by all their values"
    return f"{name} has no primary key that is valid and not deferrable{_REFUSED}"


def _key_fix(quoted: str, row: DictRow) -> str:
    whole = "" if row["relkind"] == "p" else f" Or run `ALTER TABLE {quoted} REPLICA IDENTITY FULL`: rows are then"
    whole += whole and " told apart by all their values, which the log has of each row that is updated or deleted."
    if row["relreplident"] == "n":
        return f"Run `ALTER TABLE {quoted} REPLICA IDENTITY DEFAULT`; the table needs a primary key.{whole}"
    return (
        f"Run `ALTER TABLE {quoted} ADD PRIMARY KEY (…)`, or `ALTER TABLE {quoted} REPLICA IDENTITY USING INDEX …`"
        f" with a unique index over NOT NULL columns.{whole}"
    )
