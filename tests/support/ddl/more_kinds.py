"""The kinds of the DDL fuzzer that need more than one look at a table: names, generations, partitions, types, keys."""

from random import Random

from support.ddl.kinds import ALTER, KINDS, PARTITIONED, ROOTS, Lines, change, kind, kind_of, pick, rows
from support.ddl.seen_catalog import Catalog, Column, Relation


def _joined(rnd: Random, lines: list[str]) -> list[str]:
    """In one transaction, or each by itself."""
    return [f"BEGIN; {'; '.join(lines)}; COMMIT"] if rnd.random() < 0.4 else lines


@kind_of(lambda catalog: [r for r in catalog.roots if r.key])
def drop_and_add_key(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    key = ", ".join(c.name for c in table.key)
    lines = [f"ALTER TABLE {table.name} DROP CONSTRAINT {table.table}_pkey", rows(table, rnd),
             f"ALTER TABLE {table.name} ADD PRIMARY KEY ({key})"]  # fmt: skip
    return _joined(rnd, lines)


def _not_null(table: Relation) -> list[Column]:
    return [c for c in table.columns if c.not_null and c.key < 0]


@kind_of(lambda catalog: [r for r in (*catalog.roots, *catalog.leaves) if _not_null(r)])
def identity_index(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    column = _not_null(table)[0]
    index = f"u{rnd.randrange(1000)}"
    return [f"CREATE UNIQUE INDEX {index} ON {table.name} ({column.name})",
            f"ALTER TABLE {table.name} REPLICA IDENTITY USING INDEX {index}"]  # fmt: skip


@kind_of(ROOTS)
def rename_and_back(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    away = f"s.{catalog.fresh('t')}"
    return [f"ALTER TABLE {table.name} RENAME TO {away[2:]}", change(table, rnd, away),
            f"ALTER TABLE {away} RENAME TO {table.table}"]  # fmt: skip


@kind
def swap_names(catalog: Catalog, rnd: Random) -> Lines:
    if len(catalog.roots) < 2:
        return None
    one, two = rnd.sample(catalog.roots, 2)
    return [f"BEGIN; ALTER TABLE {one.name} RENAME TO t_swap; ALTER TABLE {two.name} RENAME TO {one.table};"
            f" ALTER TABLE s.t_swap RENAME TO {two.table}; COMMIT"]  # fmt: skip


@kind_of(lambda catalog: [r for r in catalog.roots if not r.partitioned])
def online_migration(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    """A new table takes over the name of an old one."""
    if not table.key:
        return None
    new, old = catalog.fresh("n"), catalog.fresh("old")
    names = ", ".join(c.name for c in table.free)
    return [
        f"CREATE TABLE s.{new} ({table.definition()}, extra int)",
        f"INSERT INTO s.{new} ({names}) SELECT {names} FROM ONLY {table.name}",
        f"BEGIN; ALTER TABLE {table.name} RENAME TO {old}; ALTER TABLE s.{new} RENAME TO {table.table}; COMMIT",
    ]


@kind_of(lambda catalog: catalog.outside)
def enter_the_pattern(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    if table.schema == "o":
        return [change(table, rnd), f"ALTER TABLE {table.name} SET SCHEMA s"]
    return [change(table, rnd), f"ALTER TABLE {table.name} RENAME TO {catalog.fresh('t')}"]


@kind_of(lambda catalog: [r for r in catalog.roots if not r.partitioned and r.key])
def drop_and_recreate(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    """The same columns, or in another order, or with other types."""
    parts = table.definition().split(", PRIMARY KEY")
    columns = parts[0].split(", ")
    how = rnd.random()
    if how < 0.4:
        rnd.shuffle(columns)
    elif how < 0.7:
        columns = [c.replace("pg_catalog.text", "pg_catalog.int8") for c in columns]
    made = f"CREATE TABLE {table.name} ({', '.join(columns)}, PRIMARY KEY{parts[1]})"
    return [*_joined(rnd, [f"DROP TABLE {table.name} CASCADE", made]), _ints(table, rnd)]


def _ints(table: Relation, rnd: Random) -> str:
    """Rows of keys alone: the other types may have changed."""
    first = rnd.randrange(100)
    values = ", ".join(c.expression(0) for c in table.key)
    names = ", ".join(c.name for c in table.key)
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM generate_series({first}, {first + 9}) g"


@kind
def create_table(catalog: Catalog, rnd: Random) -> Lines:
    name, last = f"s.{catalog.fresh('t')}", rnd.randrange(1, 20)
    return [f"CREATE TABLE {name} (id int PRIMARY KEY, a text, big text)",
            f"INSERT INTO {name} SELECT g, 'a' || g, repeat('b', 3000) FROM generate_series(1, {last}) g"]  # fmt: skip


@kind
def truncate_several(catalog: Catalog, rnd: Random) -> Lines:
    names = [r.name for r in rnd.sample(catalog.roots, min(2, len(catalog.roots)))]
    return [f"TRUNCATE {', '.join(names)}"] if names else None


def _range_roots(catalog: Catalog) -> list[Relation]:
    return [r for r in catalog.partitioned if r.partition_key.startswith("RANGE (id")]


def _free_range(catalog: Catalog, root: Relation) -> str | None:
    bounds = " ".join(leaf.bound for leaf in catalog.leaves_of(root))
    for first in range(0, 900, 100):
        if f"FROM ({first})" not in bounds and f"FROM ('{first}')" not in bounds:
            return f"FOR VALUES FROM ({first}) TO ({first + 100})"
    return None


@kind_of(_range_roots)
def create_partition(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    bound = _free_range(catalog, root)
    return None if bound is None else [f"CREATE TABLE s.{catalog.fresh('p')} PARTITION OF {root.name} {bound}"]


@kind_of(_range_roots)
def attach(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    """A new table, empty or filled."""
    bound = _free_range(catalog, root)
    if bound is None:
        return None
    name = f"s.{catalog.fresh('x')}"
    first = int(bound.split("(")[1].split(")")[0])
    keys = f"INSERT INTO {name} ({', '.join(c.name for c in root.key)}) SELECT " + ", ".join(
        c.expression(0) for c in root.key
    ) + f" FROM generate_series({first}, {first + 7}) g"  # fmt: skip
    filled = [keys] if rnd.random() < 0.7 else []
    lines = [f"CREATE TABLE {name} (LIKE {root.name} INCLUDING ALL)", *filled,
             f"ALTER TABLE {root.name} ATTACH PARTITION {name} {bound}"]  # fmt: skip
    if rnd.random() < 0.4:
        lines[-1] = f"BEGIN; TRUNCATE {root.name}; {lines[-1]}; COMMIT"
    return lines


@kind_of(PARTITIONED)
def detach(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    leaf = pick(rnd, catalog.leaves_of(root))
    if leaf is None:
        return None
    how = rnd.choice(("", " CONCURRENTLY"))
    return [f"ALTER TABLE {root.name} DETACH PARTITION {leaf.name}{how}"]


@kind_of(PARTITIONED)
def detach_write_attach(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    leaf = pick(rnd, catalog.leaves_of(root))
    if leaf is None:
        return None
    how = rnd.choice(("", " CONCURRENTLY"))
    wait = ["!look"] if rnd.random() < 0.3 else []
    return [f"ALTER TABLE {root.name} DETACH PARTITION {leaf.name}{how}", *wait, change(leaf, rnd), *wait,
            f"ALTER TABLE {root.name} ATTACH PARTITION {leaf.name} {leaf.bound}"]  # fmt: skip


@kind_of(_range_roots)
def exchange(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    leaf = pick(rnd, [r for r in catalog.leaves_of(root) if "FROM (" in r.bound])
    if leaf is None:
        return None
    name = f"s.{catalog.fresh('x')}"
    return [f"CREATE TABLE {name} (LIKE {root.name} INCLUDING ALL)",
            f"INSERT INTO {name} SELECT * FROM {leaf.name} WHERE {leaf.some(rnd)}",
            f"BEGIN; ALTER TABLE {root.name} DETACH PARTITION {leaf.name};"
            f" ALTER TABLE {root.name} ATTACH PARTITION {name} {leaf.bound}; COMMIT"]  # fmt: skip


@kind_of(_range_roots)
def attach_captured(root: Relation, catalog: Catalog, rnd: Random) -> Lines:
    """A table that is captured by itself becomes a partition."""
    bound = _free_range(catalog, root)
    table = pick(rnd, [r for r in catalog.roots if not r.partitioned and r != root])
    if bound is None or table is None:
        return None
    return [f"ALTER TABLE {root.name} ATTACH PARTITION {table.name} {bound}"]


@kind
def inherit(catalog: Catalog, rnd: Random) -> Lines:
    tables = [r for r in catalog.roots if not r.partitioned]
    if len(tables) < 2:
        return None
    child, parent = rnd.sample(tables, 2)
    if child.parent is not None:
        return [f"ALTER TABLE {child.name} NO INHERIT s.{child.parent}"]
    return [f"ALTER TABLE {child.name} INHERIT {parent.name}"]


@kind
def enum_rename(catalog: Catalog, rnd: Random) -> Lines:
    labels = next((labels for name, _, labels in catalog.types if name == "mood"), ())
    if not labels:
        return None
    return [f"ALTER TYPE s.mood RENAME VALUE '{rnd.choice(labels)}' TO 'm{rnd.randrange(1000)}'"]


@kind
def composite_altered(catalog: Catalog, rnd: Random) -> Lines:
    name = f"k{rnd.randrange(4)}"
    return [f"ALTER TYPE s.pair {rnd.choice((f'ADD ATTRIBUTE {name} int', f'DROP ATTRIBUTE IF EXISTS {name}'))}"]


@kind_of(lambda catalog: [r for r in catalog.roots if len(r.key) == 1 and r.key[0].type == "int4"])
def copy_in(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    first = rnd.randrange(200, 260)
    return [f"COPY {table.name} ({table.key[0].name}) FROM PROGRAM 'seq {first} {first + 9}'"]


@kind_of(ROOTS)
def publication_out_and_back(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    drop, add = (KINDS[f"publication_{verb}_table"] for verb in ("drop", "add"))
    alone = Catalog((table,), ())
    return [*(drop(alone, rnd) or []), change(table, rnd), *(add(alone, rnd) or [])]


@kind_of(ROOTS)
def ddl_with_dml(table: Relation, catalog: Catalog, rnd: Random) -> Lines:
    """A DDL between DML of one transaction, perhaps in a savepoint, perhaps rolled back."""
    ddl = f"{ALTER.replace('{t}', table.name)}ADD COLUMN c{rnd.randrange(9)} int DEFAULT 3"
    if rnd.random() < 0.5:
        ddl = f"SAVEPOINT a; {ddl}; {change(table, rnd)}; {rnd.choice(('ROLLBACK TO', 'RELEASE'))} a"
    end = "ROLLBACK" if rnd.random() < 0.25 else "COMMIT"
    return [f"BEGIN; {change(table, rnd)}; {ddl}; {change(table, rnd)}; {end}"]


@kind
def two_kinds_at_once(catalog: Catalog, rnd: Random) -> Lines:
    """Two statements of any kind in one transaction."""
    names = sorted(KINDS)
    found = [KINDS[rnd.choice(names)](catalog, rnd) for _ in range(2) if names]
    lines = [line for one in found if one is not None and len(one) == 1 for line in one]
    if len(lines) < 2 or any("BEGIN" in line or line.startswith("!") for line in lines):
        return None
    return [f"BEGIN; {'; '.join(lines)}; COMMIT"]
