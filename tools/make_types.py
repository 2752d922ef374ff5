"""Writes `docs/types.md`: what each type of PostgreSQL, MySQL and MariaDB is in the change log and in the targets; and
the tables of types in `docs/database-targets.md`.

Called by `make crds`; a unit test compares, and misses no type that the sources know. Types and limits are asked of the
code; only the remarks are written here.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from make_crds import ROOT
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import arrow_type, element_of, fields_of
from tailrace.sources.mysql import types as mysql
from tailrace.sources.postgresql import types as postgresql
from tailrace.targets.lake.delta.schema import delta_type
from tailrace.targets.lake.iceberg.schema import iceberg_type
from tailrace.targets.mysql import session as mysql_session
from tailrace.targets.mysql import types as in_mysql
from tailrace.targets.postgresql import types as in_postgresql

PAGE = ROOT / "docs" / "types.md"
DATABASES = ROOT / "docs" / "database-targets.md"
HEADER = """\
# Types

<!-- Generated from the code by `make crds`; do not edit. -->

What the values of a column become in the target. A value is identical, bit for bit, whether it comes from the log or
from a chunk. One that the target's type cannot hold exactly
[becomes NULL](operations.md#values-that-a-type-cannot-hold), and is counted; in a key it stops the table with
`ValueUnsupported`. To have it, copy the column as its exact text (`string`):
`options: [{match: shop.events, as: {column: text}}]`. With `onUnsupported: Fail` it stops the table in other columns,
too.
A masked column (`options[].mask`, [secrets.md](secrets.md#masked-columns)) is `string`, too: the mask of that text.
This is what a lake gets. Databases and warehouses as targets have other types for these
([PostgreSQL, MySQL, MariaDB](database-targets.md#what-you-get), [BigQuery](bigquery.md#what-you-get),
[Snowflake](snowflake.md#what-you-get)); a database of the source's product keeps the source's.
"""


def listed(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in kinds)


def of(product: str, others: Mapping[str, Sequence[str]], kind: str) -> str:
    """Types of a product that the options can make this."""
    return f"{product}'s {listed(sorted(name for name, kinds in others.items() if kind in kinds))}"


AS = """\
## As another type

`options[].as` gives columns another type, by name: `as: {price: "decimal(38,10)", rate: double, notes: text}`.

| `as` | of | becomes | |
|---|---|---|---|
"""
AS_KINDS = (
    ("text", "all types", "string", "exact text; `asText: [column]` is the same"),
    (
        "decimal(p,s)",
        f"PostgreSQL's {listed(sorted(postgresql.NUMBERS))}; MySQL's {listed(mysql.NUMBERS)}, signed or not",
        "decimal(p,s)",
        "exact, zeros at the end of the fraction aside; holds no NaN, no infinity, no digits beyond p and s",
    ),
    (
        "double",
        "the same",
        "float64",
        "the nearest double, as PostgreSQL's own cast rounds, so **not always exact**; NaN and infinities as they are;"
        " holds no number that this cast refuses (beyond 1.8e308, or so small that it would become 0)",
    ),
    (
        "list",
        "PostgreSQL's arrays",
        "list<…>",
        "the elements have the type that a column of theirs would have, with its limits, and may be NULL;"
        f" {postgresql.LISTS}",
    ),
    (
        "struct",
        "PostgreSQL's composite types",
        "struct<…>",
        "the fields have the type that a column of theirs would have, with its limits, and may be NULL; composite"
        " types, arrays and others that become text by themselves are text in a field, too. After `ALTER TYPE` the"
        " table is read again",
    ),
    (
        "binary",
        f"{of('PostgreSQL', postgresql.OTHERS, 'binary')}, also in keys; {of('MariaDB', mysql.OTHERS, 'binary')}",
        "binary",
        "the 16 bytes of the uuid, in the order of its digits",
    ),
    (
        "time",
        f"{of('PostgreSQL', postgresql.OTHERS, 'time')} without a zone; {of('MySQL', mysql.OTHERS, 'time')}",
        "time",
        "microseconds, of lakes into Iceberg only; Spark 4.1 reads no Iceberg table that has such a column."
        f" PostgreSQL: {postgresql.LIMITS['time']}; MySQL: {mysql.LIMITS['time']}",
    ),
)
AS_NOTE = """
A column of the key keeps its own type or becomes `text`, but for `binary`. A type that a column cannot have stops its
table with `ReadRefused` before anything is read; `tailrace doctor` shows it. After a change of `as` the table starts
over by itself, or, with `onSchemaChange: EvolveAdditive` or `Stop`, takes a resync.
"""
STRUCT = 'struct<"a":int32>'
LOGICAL = (
    *("bool", "int32", "int64", "float32", "float64", "decimal(38,10)", "string", "binary"),
    *("date", "time", "timestamp", "timestamptz", "list<int32>", STRUCT),
)

BY_OPTION = {
    "list": "PostgreSQL's arrays with [`as: list`](types.md#as-another-type)",
    "struct": "PostgreSQL's composite types with `as: struct`",
    "time": "with `as: time`",
}
"""Types that a column has only if it is asked for."""
_COLLATIONS = mysql_session.COLLATIONS
IN_MYSQL = {
    "float32": "refuses infinite numbers and NaN; MariaDB has no -0.0: it becomes 0.0",
    "float64": "the same",
    "decimal": f"`{in_mysql.TEXT}` if it has more than {in_mysql.MOST_SCALE} digits behind the point",
    "string": f"collation `{_COLLATIONS['mysql']}`, MariaDB `{_COLLATIONS['mariadb']}`, which tell all texts apart;"
    " in a key, longer texts are refused",
    "binary": "in a key, longer values are refused",
    "timestamptz": "in UTC",
    "list": "JSON: a column of type `json` would change the order of fields and the digits of numbers",
    "struct": "the same",
}


@dataclass(frozen=True)
class Line:
    """Types of a source that become the same."""

    types: tuple[str, ...]
    remark: str = ""
    more: str = ""
    """More types of this kind, in words."""


POSTGRESQL = (
    Line(("bool",)),
    Line(("int2", "int4")),
    Line(("int8",)),
    Line(("float4",), "NaN, infinities and -0 as they are"),
    Line(("float8",), "NaN, infinities and -0 as they are"),
    Line(("numeric(38,10)",), "", "`numeric(p,s)`, 0 ≤ s ≤ p ≤ 38"),
    Line(("numeric",), "exact text", "other `numeric`"),
    Line(("bytea",)),
    Line(("date",)),
    Line(("timestamp",), "without a zone"),
    Line(("timestamptz",), "the moment, in UTC"),
    Line(
        tuple(sorted(postgresql.TEXT)),
        f"`char(n)` with its padding; {postgresql.NOT_UTF8}",
        "`text`, `varchar`, `char`, `name`, `uuid`, `citext`, enums",
    ),
    Line(
        ("json", "jsonb", "time", "interval", "_int4", "int4range", "inet", "point"),
        postgresql.AS_TEXT,
        "all others: `json`, `jsonb`, `time`, `interval`, arrays, ranges, network, geometric, composite …",
    ),
)
"""Domains are like their base type."""
MYSQL = (
    Line(("tinyint", "smallint", "mediumint", "int", "year"), "`tinyint(1)` is a number, too"),
    Line(("tinyint unsigned", "smallint unsigned", "mediumint unsigned")),
    Line(("int unsigned", "bigint")),
    Line(("bigint unsigned",)),
    Line(("float",)),
    Line(("double",)),
    Line(("decimal(38,10)",), "", "`decimal(p,s)`, p ≤ 38"),
    Line(("decimal(65,30)",), mysql.OTHER_FORM["decimal"], "larger `decimal`"),
    Line(("bit(1)",)),
    Line(("bit(2)", "bit(63)"), "", "`bit(2)` … `bit(63)`"),
    Line(("bit(64)",)),
    Line(("date",)),
    Line(("datetime", "datetime(6)"), "without a zone"),
    Line(("timestamp", "timestamp(6)"), "the moment, in UTC"),
    Line(("time", "time(6)"), mysql.OTHER_FORM["time"]),
    Line(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext"),
        "holds no bytes that are not valid in the column's character set",
    ),
    Line(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "`binary(n)` with its zero bytes"),
    Line(("enum", "set"), "labels; `set`: with commas"),
    Line(("json",), mysql.OTHER_FORM["json"]),
    Line(tuple(sorted(mysql.GEOMETRY)), mysql.OTHER_FORM["geometry"], "`geometry` and its kinds"),
    Line(("vector",), mysql.OTHER_FORM["vector"]),
    Line(("uuid", "inet4", "inet6"), "", "`uuid`, `inet4`, `inet6` (MariaDB)"),
)
"""MySQL's generated columns are like others."""


def _digits(kind: str) -> list[int]:
    return [int(found) for found in re.findall(r"\d+", kind.partition("(")[2])]


def base(kind: str) -> str:
    """`int` of `int unsigned`, `decimal` of `decimal(65,30)`."""
    return re.split(r"[ (]", kind)[0]


def of_postgresql(kind: str) -> str:
    digits = _digits(kind)
    return postgresql.logical("pg_catalog", base(kind), (digits[0] << 16 | digits[1]) + 4 if digits else -1)


def of_mysql(kind: str) -> str:
    precision, scale, *_ = *_digits(kind), None, None
    found = mysql.logical(mysql.ColumnType(base(kind), kind, precision, scale))
    assert found is not None, kind
    return found


def row(line: Line, logical: Callable[[str], str], limits: dict[str, str]) -> str:
    (found,) = {logical(kind) for kind in line.types}
    name = re.sub(r"\(38,10\)", "(p,s)", found)
    names = line.more or ", ".join(f"`{kind}`" for kind in line.types)
    remark = "; ".join(filter(None, (line.remark, limits.get(base(found), ""))))
    return f"| {names} | `{name}` | {remark} |"


def source_table(title: str, lines: Iterable[Line], logical: Callable[[str], str], limits: dict[str, str]) -> str:
    rows = [row(line, logical, limits) for line in lines]
    return "\n".join([f"## {title}\n", "| source type | becomes | |", "|---|---|---|", *rows]) + "\n"


def as_table() -> str:
    rows = (f"| `{name}` | {of} | `{becomes}` | {remark} |\n" for name, of, becomes, remark in AS_KINDS)
    return "".join([AS, *rows, AS_NOTE])


def target_table() -> str:
    rows = []
    for logical in LOGICAL:
        found = [logical, str(arrow_type(logical)), _delta(logical), iceberg_type(logical)]
        named = [re.sub(r"\(38, ?10\)", "(p,s)", name) for name in found]
        rows.append("| " + " | ".join(f"`{name}`" if name else "none" for name in named) + " |")
    head = ["## In change log and targets\n", "| type | Arrow (change log) | Delta | Iceberg |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _delta(logical: str) -> str:
    """Empty: Delta has no such type."""
    if logical == "time":
        return ""
    element, fields = element_of(logical), fields_of(logical)
    if fields is not None:
        return f"struct<{', '.join(f'{name}: {_delta(kind)}' for name, kind in fields)}>"
    return f"array<{_delta(element)}>" if element is not None else str(delta_type(logical))


def names_of(lines: Iterable[Line], logical: Callable[[str], str]) -> dict[str, str]:
    """The types of a source that become each logical type, in words."""
    found: dict[str, list[str]] = {}
    for line in lines:
        (becomes,) = {logical(kind) for kind in line.types}
        plain = dict.fromkeys(kind.removesuffix("(6)") for kind in line.types)
        found.setdefault(becomes, []).append(line.more or listed(plain))
    return {becomes: "; ".join(names) for becomes, names in found.items()}


def family(logical: str) -> str:
    """`list` of `list<int32>`, `decimal` of `decimal(20,0)`."""
    return re.split(r"[<(]", logical)[0]


def in_databases(
    product: str, source: tuple[str, Mapping[str, str]], form: Callable[[str], str], remarks: Mapping[str, str]
) -> str:
    """The types of a database target for values out of another product. `source`: its name, and `names_of` it."""
    of, names = source
    heads = ("logical type ([types.md](types.md))", f"of {of}", product, *([""] if remarks else []))
    rows = [heads, ("---",) * len(heads)]
    every = {logical: None for one in LOGICAL for logical in (one, *(n for n in names if family(n) == family(one)))}
    for logical in every:
        written = names.get(logical) or BY_OPTION[family(logical)]
        more = [remarks.get(family(logical), "")] if remarks else []
        rows.append((f"`{logical}`", written, form(logical), *more))
    return "\n".join(_general_names(f"| {' | '.join(row)} |").replace("|  |", "| |") for row in rows)


def _general_names(row: str) -> str:
    for one, other in (("(38,10)", "(p,s)"), ("list<int32>", "list<…>"), (STRUCT, "struct<…>"), ("integer[]", "…[]")):
        row = row.replace(one, other)
    return row


def _in_postgresql(logical: str) -> str:
    return f"`{in_postgresql.general_type(logical)}`"


def _in_mysql(logical: str) -> str:
    """The type, and that of a column of the key where it is another one."""
    kind, in_key = (_of_column(logical, key) for key in (None, None if family(logical) in BY_OPTION else 0))
    return f"`{kind}`" if kind == in_key else f"`{kind}`, in a key `{in_key}`"


def _of_column(logical: str, key: int | None) -> str:
    column = Column(name="c", id=1, source_type="", type=logical, key=key)
    schema = TableSchema(table_id=1, schema_name="s", table_name="t", version=1, columns=(column,))
    return in_mysql.type_of(schema, column)


def database_tables() -> dict[str, str]:
    """Tables by the word that marks their place on the page."""
    of_both = ("MySQL and MariaDB", names_of(MYSQL, of_mysql))
    of_other = ("PostgreSQL", names_of(POSTGRESQL, of_postgresql))
    return {
        "postgresql": in_databases("PostgreSQL", of_both, _in_postgresql, {}),
        "mysql": in_databases("MySQL, MariaDB", of_other, _in_mysql, IN_MYSQL),
    }


def with_tables(page: str) -> str:
    """The page with its tables as they are now. `ValueError`: it has no place for one."""
    for name, table in database_tables().items():
        begin, end = (f"<!-- {word}: types in {name}, by `make crds` -->\n" for word in ("generated", "end"))
        before, _, rest = page.partition(begin)
        _, there, after = rest.partition(end)
        if not there:
            raise ValueError(f"{DATABASES.name} has no lines {begin}{end}")
        page = f"{before}{begin}{table}\n{end}{after}"
    return page


def text() -> str:
    notes = (
        "Domains are like their base type. Generated columns are left out: the log does not carry them.\n",
        "MySQL's generated columns are like others; MariaDB's are left out: from 11.8.9 on its log does not carry them"
        " with updates. A column\nwith any other type is left out with `options[].columns`, else its table stops with"
        " `ReadRefused`. Which character sets there are, and what a key may consist of, says"
        " [mysql.md](mysql.md#values).\n",
    )
    sources = (
        source_table("PostgreSQL", POSTGRESQL, of_postgresql, postgresql.LIMITS),
        source_table("MySQL and MariaDB", MYSQL, of_mysql, mysql.LIMITS),
    )
    return "\n".join([HEADER, sources[0], notes[0], sources[1], notes[1], as_table(), target_table()])


def main() -> int:
    PAGE.write_text(text(), encoding="utf-8")
    DATABASES.write_text(with_tables(DATABASES.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"types: wrote {PAGE.relative_to(ROOT)} and the tables of {DATABASES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
