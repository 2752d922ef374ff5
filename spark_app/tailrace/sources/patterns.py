"""Table patterns as users write them: `schema.table`, `*` any run of characters, `?` one, everything else literal.

The schema's pattern ends at the first dot; the rest is the table's, dots included. Called by discovery, the planner and
wherever a table's options are looked up.
"""

import re
from collections.abc import Collection, Iterable
from functools import cache

from tailrace.contract.resources import TableOptions, TablesSpec


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """The expression of a pattern. The part between two stars has a fixed length, so its first place is as good as any:
    `(?>…)` keeps the engine from trying the others, of which a hostile pattern (`*?*?*?…`) has exponentially many."""
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in part) for part in re.split(r"\*+", pattern))
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(first + middle + (f".*{rest[-1]}" if rest else ""), re.DOTALL)


def matches(pattern: str, schema: str, table: str) -> bool:
    """True when the pattern names the table; case counts."""
    schema_pattern, _, table_pattern = pattern.partition(".")
    return bool(_regex(schema_pattern).fullmatch(schema) and _regex(table_pattern).fullmatch(table))


def selected(tables: TablesSpec, schema: str, table: str) -> bool:
    """True for any include pattern and no exclude pattern."""
    included = any(matches(p, schema, table) for p in tables.include)
    return included and not any(matches(p, schema, table) for p in tables.exclude)


def idle(tables: TablesSpec, options: Iterable[TableOptions], found: Collection[tuple[str, str]]) -> list[str]:
    """Sentences about patterns that match none of the tables (schema, table) found: right where such tables will be
    created later, and a slip of the pen elsewhere."""
    given = [("tables.include", pattern) for pattern in tables.include]
    given += [("options[].match", one.match) for one in options]
    unmet = [(field, p) for field, p in given if not any(matches(p, *table) for table in found)]
    return [f"{field}: pattern {p} matches no table yet" for field, p in unmet]


def options_of(options: Iterable[TableOptions], schema: str, table: str) -> TableOptions | None:
    """The first options that match the table; None: the defaults."""
    return next((o for o in options if matches(o.match, schema, table)), None)
