"""The kinds of statement of the DDL fuzzer: each looks at the catalog and writes the lines of one operation.

`KINDS` is by name. A kind answers None where nothing fits it. What it writes is mostly valid; the rest is refused by
the source and counted. DML that a kind needs (a table to attach, filled) is part of its lines.
"""

from collections.abc import Callable
from operator import attrgetter
from random import Random

from support.ddl.seen_catalog import Catalog, Column, Relation

Lines = list[str] | None
Kind = Callable[[Catalog, Random], Lines]
Tables = Callable[[Catalog], list[Relation]]
OfTable = Callable[[Relation, Catalog, Random], Lines]
ALTER = "ALTER TABLE {t} "
ROOTS: Tables = attrgetter("roots")
LEAVES: Tables = attrgetter("leaves")
PARTITIONED: Tables = attrgetter("partitioned")


def publication(what: str) -> str:
    """Of the publication in use: a given one, or ours."""
    return (
        f"DO $$ BEGIN EXECUTE (SELECT format('ALTER PUBLICATION %I {what}', pubname) FROM pg_publication"
        " ORDER BY pubname = 'given' DESC LIMIT 1); END $$"
    )


def _published_anew(what: str) -> str:
    return (
        "DO $$ DECLARE p name; BEGIN SELECT pubname FROM pg_publication ORDER BY pubname = 'given' DESC LIMIT 1 INTO p;"
        " EXECUTE format('ALTER PUBLICATION %I DROP TABLE {t}', p);"
        f" EXECUTE format('ALTER PUBLICATION %I ADD TABLE {{t}} {what}', p); END $$"
    )


def pick(rnd: Random, items: list[Relation]) -> Relation | None:
    return rnd.choice(items) if items else None


def rows(table: Relation, rnd: Random, only: str = "") -> str:
    """INSERT of some rows."""
    first = rnd.randrange(0, 280)
    salt = rnd.randrange(1000)
    names = ", ".join(c.name for c in table.free)
    values = ", ".join(c.expression(salt) for c in table.free)
    last = first + rnd.randrange(1, 12)
    return f"INSERT INTO {only or table.name} ({names}) SELECT {values} FROM generate_series({first}, {last}) g"


def change(table: Relation, rnd: Random, name: str = "") -> str:
    """One row-changing statement."""
    name, how = name or table.name, rnd.random()
    if how < 0.3 or not table.values:
        return rows(table, rnd, name) + " ON CONFLICT DO NOTHING"
    if how < 0.65:
        column = rnd.choice(table.values)
        plain = column.kind == "b" and column.type in ("text", "int4", "int8", "_text", "_int4")
        value = column.expression(rnd.randrange(1000)).replace("g", str(rnd.randrange(900)))
        return f"UPDATE {name} SET {column.name} = {value if plain else column.name} WHERE {table.some(rnd)}"
    if how < 0.8:
        return f"DELETE FROM {name} WHERE {table.some(rnd)}"
    return _move(table, rnd, name)


def _move(table: Relation, rnd: Random, name: str) -> str:
    column = next((c for c in table.key if c.type in ("int4", "int8")), None)
    if column is None:
        return f"DELETE FROM {name} WHERE {table.some(rnd)}"
    return f"UPDATE {name} SET {column.name} = {column.name} + {rnd.choice((1, 97, 100))} WHERE {table.some(rnd)}"


def of(tables: Tables, write: OfTable) -> Kind:
    """A kind that needs one of these tables."""

    def make(catalog: Catalog, rnd: Random) -> Lines:
        table = pick(rnd, tables(catalog))
        return None if table is None else write(table, catalog, rnd)

    return make


def _always(*lines: str) -> Kind:
    return lambda catalog, rnd: [*lines]


def _alter(what: Callable[[Relation, Random], str | None], tables: Tables = ROOTS) -> Kind:
    def write(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
        text = what(table, rnd)
        return None if text is None else [text.replace("{t}", table.name)]

    return of(tables, write)


def _column(table: Relation, rnd: Random, test: Callable[[Column], bool] = lambda c: c.key < 0) -> Column | None:
    found = [c for c in table.columns if test(c)]
    return rnd.choice(found) if found else None


def _name(rnd: Random) -> str:
    return rnd.choice(("c", "d", "e1", "f")) + str(rnd.randrange(4))


def _on_column(text: str, test: Callable[[Column], bool] = lambda c: c.key < 0) -> Kind:
    def what(table: Relation, rnd: Random) -> str | None:
        column = _column(table, rnd, test)
        return None if column is None else text.replace("{c}", column.name).replace("{n}", _name(rnd))

    return _alter(what)


def _plain(text: str, tables: Tables = ROOTS) -> Kind:
    return _alter(lambda table, rnd: text.replace("{n}", _name(rnd)), tables)


ADD = ALTER + "ADD COLUMN {n} "


def _is_text(column: Column) -> bool:
    return column.key < 0 and column.type in ("text", "varchar") and not column.generated


def _is_int(column: Column) -> bool:
    return column.key < 0 and column.type in ("int2", "int4") and not column.generated


def _key_away(table: Relation, rnd: Random) -> str | None:
    """Rows have the same key for a moment, and only the whole rows in the log tell them apart."""
    key = [c.name for c in table.columns if c.key >= 0]
    if not key:
        return None
    names = ", ".join(c.name for c in table.columns if not c.generated)
    same = " AND ".join(f"a.{name} = b.{name}" for name in key)
    full = rnd.choice(("", f"{ALTER}REPLICA IDENTITY FULL; "))
    return (
        f"DO $$ BEGIN {full}"
        f" EXECUTE (SELECT format('{ALTER}DROP CONSTRAINT %I CASCADE', conname) FROM pg_constraint"
        " WHERE conrelid = '{t}'::regclass AND contype = 'p');"
        f" INSERT INTO {{t}} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM {{t}} LIMIT 3;"
        f" DELETE FROM {{t}} a USING {{t}} b WHERE {same} AND a.tableoid = b.tableoid AND a.ctid < b.ctid;"
        f" {ALTER}ADD PRIMARY KEY ({', '.join(key)}); END $$"
    )


KINDS: dict[str, Kind] = {
    "key_away": _alter(_key_away),
    "add_column": _plain(ADD + "text"),
    "add_column_default": _plain(ADD + "int DEFAULT 7 NOT NULL"),
    "add_column_volatile_default": _plain(ADD + "float8 DEFAULT random()"),
    "add_column_then_drop_default": _plain(
        f"BEGIN; {ADD}int DEFAULT 8 NOT NULL; {ALTER}ALTER {{n}} DROP DEFAULT; COMMIT"
    ),
    "add_generated": _plain(ADD + "int GENERATED ALWAYS AS (1 + 1) STORED"),
    "add_identity": _plain(ADD + "int GENERATED BY DEFAULT AS IDENTITY"),
    "add_enum": _plain(ADD + "s.mood"),
    "add_domain": _plain(ADD + "s.dom DEFAULT 'dom'"),
    "add_composite": _plain(ADD + "s.pair DEFAULT ROW(1, 'x')::s.pair"),
    "drop_column": _on_column(ALTER + "DROP COLUMN {c} CASCADE"),
    "drop_and_add_column": _on_column(
        f"{ALTER}DROP COLUMN {{c}} CASCADE; {ALTER}ADD COLUMN {{c}} text DEFAULT 'again'"
    ),
    "rename_column": _on_column(ALTER + "RENAME {c} TO {n}"),
    "drop_expression": _on_column(ALTER + "ALTER {c} DROP EXPRESSION", lambda c: c.generated),
    "widen_type": _on_column(ALTER + "ALTER {c} TYPE bigint", _is_int),
    "change_type_using": _on_column(ALTER + "ALTER {c} TYPE text USING {c} || '!'", _is_text),
    "change_type_to_varchar": _on_column(ALTER + "ALTER {c} TYPE varchar(4000)", _is_text),
    "change_type_to_domain": _on_column(ALTER + "ALTER {c} TYPE s.dom", _is_text),
    "change_type_and_back": _on_column(
        ALTER + "ALTER {c} TYPE varchar(4000) USING {c} || '?'; " + ALTER + "ALTER {c} TYPE text", _is_text
    ),
    "set_not_null": _on_column(ALTER + "ALTER {c} SET NOT NULL"),
    "drop_not_null": _on_column(ALTER + "ALTER {c} DROP NOT NULL"),
    "set_default": _on_column(ALTER + "ALTER {c} SET DEFAULT 'elsewhere'", _is_text),
    "drop_default": _on_column(ALTER + "ALTER {c} DROP DEFAULT", lambda c: c.has_default),
    "set_storage": _on_column(ALTER + "ALTER {c} SET STORAGE EXTERNAL", _is_text),
    "set_statistics": _on_column(ALTER + "ALTER {c} SET STATISTICS 50"),
    "identity_full": _plain(ALTER + "REPLICA IDENTITY FULL"),
    "identity_default": _plain(ALTER + "REPLICA IDENTITY DEFAULT"),
    "identity_nothing": _plain(ALTER + "REPLICA IDENTITY NOTHING"),
    "leaf_identity_full": _plain(ALTER + "REPLICA IDENTITY FULL", LEAVES),
    "leaf_identity_default": _plain(ALTER + "REPLICA IDENTITY DEFAULT", LEAVES),
    "leaf_identity_nothing": _plain(ALTER + "REPLICA IDENTITY NOTHING", LEAVES),
    "create_index": _on_column("CREATE INDEX ON {t} ({c})"),
    "truncate": _plain("TRUNCATE {t}"),
    "truncate_cascade": _plain("TRUNCATE {t} RESTART IDENTITY CASCADE"),
    "truncate_leaf": _plain("TRUNCATE {t}", LEAVES),
    "truncate_only": _plain("TRUNCATE ONLY {t}"),
    "truncate_rolled_back": _plain("BEGIN; TRUNCATE {t}; ROLLBACK"),
    "vacuum_full": _plain("VACUUM FULL {t}"),
    "vacuum": _plain("VACUUM FREEZE {t}"),
    "cluster": _plain("CLUSTER {t} USING {n}"),
    "reindex": _plain("REINDEX TABLE {t}"),
    "analyze": _plain("ANALYZE {t}"),
    "set_unlogged_and_back": _plain(ALTER + "SET UNLOGGED; " + ALTER + "SET LOGGED"),
    "row_security": _plain(ALTER + "ENABLE ROW LEVEL SECURITY; " + ALTER + "FORCE ROW LEVEL SECURITY"),
    "owner": _plain(ALTER + "OWNER TO other"),
    "grant": _plain("GRANT ALL ON {t} TO PUBLIC"),
    "comment": _plain("COMMENT ON TABLE {t} IS 'about it'"),
    "check": _on_column(ALTER + "ADD CHECK ({c} IS NOT NULL) NOT VALID"),
    "trigger": _plain("CREATE OR REPLACE TRIGGER writes AFTER INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION s.note()"),
    "rule": _plain("CREATE OR REPLACE RULE also AS ON DELETE TO {t} DO ALSO INSERT INTO s.notes DEFAULT VALUES"),
    "drop_rule": _plain("DROP RULE IF EXISTS also ON {t}"),
    "drop_trigger": _plain("DROP TRIGGER IF EXISTS writes ON {t}"),
    "leave_the_schema_and_come_back": _plain("BEGIN; " + ALTER + "SET SCHEMA o; COMMIT"),
    "publication_drop_table": _plain(publication("DROP TABLE {t}")),
    "publication_add_table": _plain(publication("ADD TABLE {t}")),
    "publication_filter": _plain(_published_anew("WHERE (id < 9)")),
    "publication_columns": _plain(_published_anew("(id)")),
    "publication_insert_only": _plain(publication("SET (publish = ''insert, update'')")),
    "publication_everything": _plain(publication("SET (publish = ''insert, update, delete, truncate'')")),
    "publication_not_via_root": _plain(publication("SET (publish_via_partition_root = false)")),
    "publication_via_root": _plain(publication("SET (publish_via_partition_root = true)")),
    "rename_table": of(ROOTS, lambda t, c, _: [f"ALTER TABLE {t.name} RENAME TO {c.fresh('t')}"]),
    "leave_the_pattern": of(ROOTS, lambda t, c, _: [f"ALTER TABLE {t.name} RENAME TO {c.fresh('x')}"]),
    "rename_schema_and_back": _always("ALTER SCHEMA s RENAME TO s2", "ALTER SCHEMA s2 RENAME TO s"),
    "default_partition": of(
        PARTITIONED, lambda t, c, _: [f"CREATE TABLE s.{c.fresh('p')} PARTITION OF {t.name} DEFAULT"]
    ),
    "drop_partition": of(LEAVES, lambda t, c, _: [f"DROP TABLE {t.name}"]),
    "drop_table": of(lambda c: c.roots if len(c.roots) > 4 else [], lambda t, c, _: [f"DROP TABLE {t.name} CASCADE"]),
    "drop_index": lambda _, rnd: [f"DROP INDEX IF EXISTS s.u{rnd.randrange(1000)}"],
    "enum_add": lambda _, rnd: [f"ALTER TYPE s.mood ADD VALUE IF NOT EXISTS 'l{rnd.randrange(9)}'"],
    "type_renamed": _always("ALTER TYPE s.mood RENAME TO humour", "ALTER TYPE s.humour RENAME TO mood"),
    "domain_changed": lambda _, rnd: [
        "ALTER DOMAIN s.dom "
        + rnd.choice(("ADD CHECK (length(value) < 100000)", "SET DEFAULT 'd'", "DROP DEFAULT"))
    ],
    "session_role": of(
        ROOTS, lambda t, _, rnd: [f"BEGIN; SET LOCAL session_replication_role = replica; {change(t, rnd)}; COMMIT"]
    ),
}  # fmt: skip


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


def kind_of(tables: Tables) -> Callable[[OfTable], OfTable]:
    """As `of`, under the function's name."""

    def register(write: OfTable) -> OfTable:
        KINDS[write.__name__] = of(tables, write)
        return write

    return register
