"""What the database looks like while a random script is being written: asked from the source itself, ordered by name.

The script's next statement depends on it and on the seed alone, so a seed makes the same script again. Used by `kinds`.
"""

from dataclasses import dataclass
from random import Random

import psycopg

_RELATIONS = """
SELECT c.relname::text, c.relkind::text, c.relispartition, n.nspname::text,
       (SELECT p.relname::text FROM pg_inherits i JOIN pg_class p ON p.oid = inhparent WHERE inhrelid = c.oid
         ORDER BY 1 LIMIT 1),
       coalesce(pg_get_partkeydef(c.oid), ''), coalesce(pg_get_expr(c.relpartbound, c.oid), ''), c.relpersistence::text,
       c.relreplident::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname IN ('s', 'o') AND relkind IN ('r', 'p') ORDER BY 4, 1
"""
_COLUMNS = """
SELECT n.nspname::text, c.relname::text, a.attname::text, t.typname::text, t.typtype::text, b.typname::text,
       tn.nspname::text, a.attnotnull, a.attgenerated <> '', a.attidentity <> '', a.atthasdef,
       coalesce((SELECT array_position(indkey::int2[], a.attnum) FROM pg_index
                  WHERE indrelid = c.oid AND indisprimary), -1)::int
  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
  JOIN pg_type t ON t.oid = atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace
  LEFT JOIN pg_type b ON b.oid = t.typbasetype
 WHERE n.nspname IN ('s', 'o') AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2, attnum
"""
_TYPES = """
SELECT t.typname::text, typtype::text, ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY 1)
  FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace LEFT JOIN pg_class c ON c.oid = typrelid
 WHERE nspname = 's' AND (typtype IN ('e', 'd') OR (typtype = 'c' AND c.relkind = 'c')) ORDER BY 1
"""

_NUMBERS = {"int2": "(g % 30000)::int2", "int4": "g", "int8": "g * 1000000007", "numeric": "g + 0.25"}
_EXPRESSIONS = _NUMBERS | {
    "float8": "g / 3.0",
    "bool": "g % 2 = 0",
    "date": "date '2020-01-01' + g",
    "timestamptz": "timestamptz '2020-01-01 00:00+00' + g * interval '1 minute'",
    "jsonb": "jsonb_build_object('g', g)",
    "uuid": "md5(g::text)::uuid",
}

_ARRAYS = {"_text": "ARRAY['', repeat('{salt}-' || g, {salt})]", "_int4": "ARRAY[g, {salt}, -g]"}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    kind: str
    """Of the type: b(ase), e(num), d(omain), c(omposite)."""
    base: str | None
    schema: str
    not_null: bool
    generated: bool
    identity: bool
    has_default: bool
    key: int
    """Place in the primary key, or -1."""

    def expression(self, salt: int) -> str:
        """A value made of `g`."""
        if self.kind == "e":
            return f"(enum_range(NULL::{self.schema}.{self.type}))[1 + (g + {salt}) % 2]"
        if self.kind == "c":
            return "NULL"
        base = self.base if self.kind == "d" else self.type
        made = _EXPRESSIONS.get(base or "", "")
        if made:
            return made if self.key >= 0 or base not in _NUMBERS else f"({made}) + {salt}"
        if base in _ARRAYS:
            return _ARRAYS[base].format(salt=salt)
        if self.key >= 0:
            return "'k' || g"
        return f"repeat('{salt}-' || g, {300 if self.name == 'big' else 1})"


@dataclass(frozen=True)
class Relation:
    schema: str
    table: str
    partitioned: bool
    leaf: bool
    """A partition, of whatever level."""
    parent: str | None
    partition_key: str
    bound: str
    columns: tuple[Column, ...]
    identity: str

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(sorted((c for c in self.columns if c.key >= 0), key=lambda c: c.key))

    @property
    def free(self) -> tuple[Column, ...]:
        """Columns that may be written."""
        return tuple(c for c in self.columns if not c.generated and not c.identity)

    @property
    def values(self) -> tuple[Column, ...]:
        return tuple(c for c in self.free if c.key < 0)

    def some(self, rnd: Random) -> str:
        """A condition that picks some of the rows."""
        column = self.key[0] if self.key else self.columns[0]
        size = rnd.choice((2, 3, 5))
        return f"abs(hashtext({column.name}::text)) % {size} = {rnd.randrange(size)}"

    def definition(self) -> str:
        """Columns of a table that fits as a partition, or as another generation."""
        types = [f"{c.name} {c.schema}.{c.type}{' NOT NULL' if c.not_null else ''}" for c in self.columns]
        key = f", PRIMARY KEY ({', '.join(c.name for c in self.key)})" if self.key else ""
        return ", ".join(types) + key


@dataclass(frozen=True)
class Catalog:
    relations: tuple[Relation, ...]
    types: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(name, kind, labels) of the schema's own types."""

    @classmethod
    def of(cls, connection: psycopg.Connection) -> "Catalog":
        columns: dict[tuple[str, str], list[Column]] = {}
        for row in connection.execute(_COLUMNS.encode()).fetchall():
            column = Column(*row[2:])
            columns.setdefault((row[0], row[1]), []).append(column)
        relations = tuple(
            Relation(r[3], r[0], r[1] == "p", r[2], r[4], r[5], r[6], tuple(columns.get((r[3], r[0]), ())), r[8])
            for r in connection.execute(_RELATIONS.encode()).fetchall()
        )
        types = connection.execute(_TYPES.encode()).fetchall()
        return cls(relations, tuple((t[0], t[1], tuple(t[2])) for t in types))

    @property
    def roots(self) -> list[Relation]:
        """Tables that a Replicator would take."""
        return [r for r in self.relations if r.schema == "s" and not r.leaf and not r.table.startswith("x")]

    @property
    def outside(self) -> list[Relation]:
        """Tables that the patterns leave out."""
        return [r for r in self.relations if not r.leaf and (r.schema == "o" or r.table.startswith("x"))]

    @property
    def leaves(self) -> list[Relation]:
        return [r for r in self.relations if r.leaf and not r.partitioned]

    @property
    def partitioned(self) -> list[Relation]:
        return [r for r in self.relations if r.partitioned and not r.leaf and r.schema == "s"]

    def leaves_of(self, root: Relation) -> list[Relation]:
        return [r for r in self.relations if r.leaf and r.parent == root.table]

    def fresh(self, prefix: str) -> str:
        """A name that nothing has."""
        taken = {r.table for r in self.relations}
        return next(f"{prefix}{n}" for n in range(1, 1000) if f"{prefix}{n}" not in taken)
