"""The fingerprint of tables: all that gives their rows a meaning and that no row event reports.

Called by every look at the catalog (`look`); `log.differences` says what each difference means. A part of one kind
is a map from item to value. Where a row of the catalog can be taken away and come back between two looks, its value
names the transaction that wrote the row (`xmin`): VACUUM never changes it, not even FREEZE or FULL. Rows of pg_class
and of a table's own columns are left out for the opposite reason: a GRANT writes them as well.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.rows import dict_row

from tailrace.changelog.records.tables import Parts
from tailrace.contract.resources import TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import Connection, source_errors
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.model import AlteredType, PgTable
from tailrace.sources.postgresql.publication import Publication
from tailrace.sources.postgresql.publication import look as look_at_publication
from tailrace.sources.postgresql.trees import EMPTIED_BY, Tree, Trees

# `key_made`: REINDEX CONCURRENTLY leaves a constraint its oid, and only an index that has none gets another one.
# `toast`: a rewrite gives a table another one, TRUNCATE leaves it. (What members of partition trees have: `trees`.)
_OWN = f"""
SELECT c.oid::int8 AS oid, c.relkind::text AS relkind, c.relfilenode::int8 AS file, c.reltoastrelid::int8 AS toast,
       c.relreplident::text AS identity,
       pg_catalog.row_security_active(c.oid) AS row_security,
       (SELECT t.xmin::text FROM pg_catalog.pg_type t WHERE t.oid = c.reltype) AS moved_by,
       {EMPTIED_BY},
       x.indkey::text || '/' || x.indcollation::text || '/' || x.indclass::text AS key_order,
       coalesce(k.oid, x.indexrelid)::text AS key_made
  FROM pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_index x ON x.indrelid = c.oid AND x.indisvalid AND x.indimmediate
   AND CASE c.relreplident WHEN 'i' THEN x.indisreplident ELSE x.indisprimary END
  LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = x.indexrelid AND k.conrelid = c.oid AND k.contype IN ('p', 'u')
 WHERE c.oid = ANY(%s::int8[]::oid[])
"""
# Types of the copied columns that are not built in, through domains, arrays, ranges and composite types.
_TYPES = """
WITH RECURSIVE used(rel, type) AS (
  SELECT a.attrelid, a.atttypid FROM unnest(%s::int8[], %s::int2[]) AS w(rel, attnum)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = w.rel::oid AND a.attnum = w.attnum WHERE a.atttypid >= 16384::oid
  UNION
  SELECT u.rel, n.type FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.type
   CROSS JOIN LATERAL (
     SELECT t.typbasetype UNION ALL SELECT t.typelem UNION ALL
     SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid OR r.rngmultitypid = t.oid UNION ALL
     SELECT a.atttypid FROM pg_catalog.pg_attribute a
      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS n(type)
   WHERE n.type >= 16384::oid)
SELECT u.rel::int8 AS rel, 'enum label' AS kind, e.oid::text AS item, e.enumlabel || ' @' || e.xmin::text AS value,
       u.type::text AS type,
       (SELECT l.xmin::text::int8 FROM pg_catalog.pg_enum l WHERE l.enumtypid = u.type AND l.xmin <> t.xmin
         ORDER BY pg_catalog.age(l.xmin) LIMIT 1) AS altered_by
  FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.type JOIN pg_catalog.pg_enum e ON e.enumtypid = u.type
UNION ALL
SELECT u.rel::int8, 'composite type', t.oid::text,
       (SELECT string_agg(a.attnum || ' ' || CASE WHEN a.attisdropped THEN '-' ELSE a.atttypid::text END, ','
                          ORDER BY a.attnum)
          FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0),
       u.type::text,
       (SELECT a.xmin::text::int8 FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND a.xmin <> t.xmin ORDER BY pg_catalog.age(a.xmin) LIMIT 1)
  FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.type AND t.typtype = 'c'
"""
KINDS = (
    "file",
    "toast",
    "partition",
    "replica identity",
    "attributes",
    "selection",
    "name in the log",
    "key order",
    "key index",
    "row security",
    "enum label",
    "composite type",
    "publication",
    "membership",
)
UNSETTLED = "changed"
"""A mark in place of a selection that has changed since the last look. No column that came since then is certainly
new."""
LONGEST = 80
"""Characters of a value; longer ones are kept as digests."""


@dataclass(frozen=True)
class CatalogLook:
    """The tables as the catalog shows them, with their parts, and the publication."""

    tables: Mapping[int, PgTable]
    publication: Publication | None


def look(
    connection: Connection, tables: TablesSpec, options: Sequence[TableOptions], publication: str, trees: Trees
) -> CatalogLook:
    """The fingerprints at one look at the catalog. Parts that are read later may be newer than the first ones; the next
    look then finds a difference. A table that was dropped meanwhile is not in the look: half its parts would be
    missing."""
    with source_errors("looking at the catalog"):
        found = discover(connection, tables, options, trees)
        published = look_at_publication(connection, publication)
        parts, emptied, moved_by, altered = _parts(connection, found, trees.known)
    present = [table for table in found if table.oid in moved_by]
    for table in present:
        own = parts[table.oid]
        # Of the look that has the names: as if both were read at once.
        own["attributes"] = {"count": str(table.attributes)}
        own["selection"] = {"columns": selection(table.options)}
        own["publication"] = {} if published is None else {"row": published.row}
        # A member by its schema leaves when it moves to another one; its row type moves along.
        moved = moved_by[table.oid] if published is not None and published.by_schema(table) else ""
        own["name in the log"] = _logged_names(table, published)
        own["membership"] = {} if published is None else {"row": f"{published.membership(table)} {moved}".strip()}
    complete = (
        replace(t, parts=parts[t.oid], emptied_by=emptied[t.oid], altered=altered.get(t.oid, {})) for t in present
    )
    return CatalogLook({t.oid: t for t in complete}, published)


def _parts(
    connection: Connection, tables: Iterable[PgTable], trees: Mapping[int, Tree]
) -> tuple[dict[int, Parts], dict[int, Mapping[str, int]], dict[int, str], dict[int, dict[str, AlteredType]]]:
    """Parts, the transactions that may have emptied files, those that last moved or renamed the tables, which only
    tables that are still there have, and those that have altered types (`PgTable.altered`)."""
    moved_by: dict[int, str] = {}
    parts: dict[int, Parts] = {t.oid: {kind: {} for kind in KINDS} for t in tables}
    emptied: dict[int, Mapping[str, int]] = {oid: {} for oid in parts}
    for oid in parts.keys() & trees.keys():
        parts[oid] |= trees[oid].parts
        emptied[oid] = trees[oid].emptied_by
    columns = [(t.oid, c.attnum) for t in tables for c in t.columns]
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_OWN, (list(parts),)).fetchall():
            own, item = parts[row["oid"]], str(row["oid"])
            moved_by[row["oid"]] = row["moved_by"] or ""
            own["key order"]["index"] = _short(row["key_order"] or "")
            own["key index"]["index"] = row["key_made"] or ""
            own["row security"]["applies"] = str(row["row_security"]).lower()
            if row["relkind"] != "p":
                own["file"][item] = str(row["file"])
                own["toast"][item] = str(row["toast"])
                own["replica identity"][item] = row["identity"]
                emptied[row["oid"]] = {} if row["emptied_by"] is None else {item: row["emptied_by"]}
        of_types = cursor.execute(_TYPES, ([oid for oid, _ in columns], [n for _, n in columns])).fetchall()
    altered: dict[int, dict[str, AlteredType]] = {}
    for row in of_types:
        parts[row["rel"]][row["kind"]][row["item"]] = _short(row["value"] or "")
        if row["altered_by"] is not None:
            altered.setdefault(row["rel"], {})[row["item"]] = AlteredType(row["type"], row["altered_by"])
    return parts, emptied, moved_by, altered


def _logged_names(table: PgTable, published: Publication | None) -> dict[str, str]:
    """The columns of the table's Relation messages, by number."""
    names = dict(table.names)
    if published is not None:
        listed = published.columns(table)
        generated = table.stored if published.generated or listed is not None else {}
        names = {n: name for n, name in {**names, **generated}.items() if listed is None or n in listed}
    return {str(n): names[n] for n in sorted(names)}


def selection(options: TableOptions | None) -> str:
    """Which columns are copied, of those that come as well."""
    return "*" if options is None or options.columns is None else _short(json.dumps(sorted(options.columns)))


def _short(value: str) -> str:
    return value if len(value) <= LONGEST else hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
