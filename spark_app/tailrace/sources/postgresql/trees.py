"""Partition trees as the catalog shows them: what a look needs of each partition, read again only where it may differ.

Called by discovery and, through it, by every look at the catalog. A source may have a hundred thousand partitions, and
a look comes every few seconds: reading all of them cost seconds of the server's CPU each time. So a look first asks for
a stamp of each tree, a hash over the transactions that wrote the catalog's rows of which its details consist, and reads
the details of those trees alone whose stamp is another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg.rows import DictRow, dict_row

from tailrace.changelog.records.tables import Parts
from tailrace.databases.postgresql.connect import Connection
from tailrace.sources.postgresql.model import FileNodes, PgTable

# Of each member its rows in pg_class, pg_inherits and pg_index, and its schema's; of the root its columns as well: a
# partition's columns are named and dropped through the root alone, and what else is of interest about them (values for
# older rows) comes with a new row in pg_class.
_STAMPS = """
WITH RECURSIVE member(root, oid, attached_by) AS (
  SELECT r::oid, r::oid, NULL::xid FROM unnest(%s::int8[]) AS r
  UNION ALL
  SELECT m.root, i.inhrelid, i.xmin FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.oid)
SELECT m.root::int8, pg_catalog.count(*)::int8,
       pg_catalog.bit_xor(pg_catalog.hash_record_extended(
         ROW(c.oid, c.xmin, n.xmin, m.attached_by, x.indexrelid, x.xmin), 0)),
       (SELECT pg_catalog.bit_xor(pg_catalog.hash_record_extended(ROW(a.attnum, a.xmin), 0))
          FROM pg_catalog.pg_attribute a WHERE a.attrelid = m.root)
  FROM member m
  JOIN pg_catalog.pg_class c ON c.oid = m.oid AND c.relkind IN ('r', 'p', 'f')
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_index x ON x.indrelid = m.oid
 GROUP BY m.root
"""

# Of a row `c` of pg_class: the transaction that wrote it last, as TRUNCATE does; null if that one or a later one wrote
# the table's columns: it may have been a rewrite.
EMPTIED_BY = """
       CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
                            AND (a.xmin = c.xmin
                              OR pg_catalog.age(a.xmin) BETWEEN 0 AND pg_catalog.age(c.xmin))) THEN NULL
            ELSE c.xmin::text::int8 END AS emptied_by""".strip()

# A SQL_ASCII database may name a partition by any bytes; in messages alone, so anything but ASCII may be escaped there.
_NAME = """CASE WHEN pg_catalog.current_setting('server_encoding') <> 'SQL_ASCII' THEN c.oid::regclass::text
       ELSE pg_catalog.encode(pg_catalog.convert_to(c.oid::regclass::text, 'SQL_ASCII'), 'escape') END"""
# Rows of partitions are logged by their own replica identity, and `ADD COLUMN … DEFAULT` keeps the value of older rows
# with them, not with the root. `toast`: a rewrite gives a
# table another one, TRUNCATE leaves it. Trees are walked in pg_inherits: pg_partition_tree() locks every leaf, and a
# look must wait for no lock: a VACUUM FULL of one partition would hold up the whole stream, and DDL on two trees could
# meet it in a deadlock.
_MEMBERS = f"""
WITH RECURSIVE member(root, oid, attached_by) AS (
  SELECT r, r::oid, NULL::xid FROM unnest(%s::int8[]) AS r
  UNION ALL
  SELECT m.root, i.inhrelid, i.xmin FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.oid
   WHERE NOT i.inhdetachpending)
SELECT m.root AS root, c.oid::int8 AS oid, {_NAME} AS name, c.relkind::text AS relkind,
       c.relpersistence::text AS persistence, c.relreplident::text AS identity, c.relfilenode::int8 AS file,
       c.reltoastrelid::int8 AS toast, m.attached_by::text AS attached_by,
       {EMPTIED_BY},
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index x,
                    unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, position), pg_catalog.pg_attribute a
              WHERE x.indrelid = c.oid AND x.indisvalid AND x.indimmediate AND c.relreplident <> 'n'
                AND CASE c.relreplident WHEN 'i' THEN x.indisreplident ELSE x.indisprimary END
                AND k.position <= x.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.attnum) AS key,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.atthasmissing) AS missing
  FROM member m JOIN pg_catalog.pg_class c ON c.oid = m.oid
 WHERE c.oid <> m.root::oid
 ORDER BY c.oid
"""
TREES_AT_A_TIME = 50
"""Trees whose details are read at once: a row of them is large until it is sorted out."""
Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Shape:
    """All that decides whether changes of a partition come, and say which row they are about."""

    relkind: str
    persistence: str
    identity: str
    key: frozenset[str]


@dataclass(frozen=True)
class Tree:
    """Everything below a partitioned table. Never changed: looks share it."""

    storage: FileNodes
    shapes: Mapping[Shape, str]
    """The shapes of the leaves; each with the name of one that has it."""
    missing: frozenset[str]
    """Columns whose older rows have a value in some leaf that the log never carried."""
    parts: Parts
    """The members' parts of the fingerprint."""
    emptied_by: Mapping[str, int]


NOTHING = Tree((), {}, frozenset(), {}, {})
"""The tree of a table that was dropped while the look was under way: the next look will not see it."""


class Trees:
    """Those of one database, as the last look saw them, and the tables."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Stamp, Tree]] = {}
        self.tables: dict[int, tuple[object, PgTable]] = {}
        """Each table that was found, and what it was made of."""

    def look(self, connection: Connection, roots: Sequence[int]) -> Mapping[int, Tree]:
        """The trees of these tables now. The stamp is read first: details that are newer than it are read once more by
        the next look, and then stay."""
        stamps = {row[0]: row[1:] for row in connection.execute(_STAMPS, (list(roots),)).fetchall()} if roots else {}
        before = self._known
        self._known = {i: before[i] for i, stamp in stamps.items() if i in before and before[i][0] == stamp}
        for some in _at_a_time([i for i in stamps if i not in self._known]):
            rows: dict[int, list[DictRow]] = {i: [] for i in some}
            with connection.cursor(row_factory=dict_row) as cursor:
                for row in cursor.execute(_MEMBERS, (some,)).fetchall():
                    rows[row["root"]].append(row)
            self._known |= {i: (stamps[i], _tree(members)) for i, members in rows.items()}
        return self.known

    @property
    def known(self) -> Mapping[int, Tree]:
        return {i: tree for i, (_, tree) in self._known.items()}


def _at_a_time(roots: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(roots), TREES_AT_A_TIME):
        yield list(roots[start : start + TREES_AT_A_TIME])


def _tree(members: Sequence[DictRow]) -> Tree:
    leaves = [m for m in members if m["relkind"] != "p"]
    shapes: dict[Shape, str] = {}
    for leaf in leaves:
        shape = Shape(leaf["relkind"], leaf["persistence"], leaf["identity"], frozenset(leaf["key"]))
        shapes.setdefault(shape, leaf["name"])
    return Tree(
        storage=tuple((leaf["oid"], leaf["file"]) for leaf in leaves if leaf["relkind"] == "r"),
        shapes=shapes,
        missing=frozenset(column for leaf in leaves for column in leaf["missing"]),
        parts={
            "file": {str(leaf["oid"]): str(leaf["file"]) for leaf in leaves},
            "toast": {str(leaf["oid"]): str(leaf["toast"]) for leaf in leaves},
            "partition": {str(m["oid"]): m["attached_by"] or "" for m in members},
            "replica identity": {str(leaf["oid"]): leaf["identity"] for leaf in leaves},
        },
        emptied_by={str(m["oid"]): m["emptied_by"] for m in members if m["emptied_by"] is not None},
    )
