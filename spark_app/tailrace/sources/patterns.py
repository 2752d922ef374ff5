"""Table patterns as users write them: `schema.table`, `*` any run of characters, `?` one, everything else literal.

The schema's pattern ends at the first dot; the rest is the table's, dots included. Called by discovery, the planner and
wherever a table's options are looked up.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache

from tailrace.contract.resources import TableOptions, TablesSpec

_NAMED = 3
"""Tables that one sentence names."""


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


def of_other_case(
    tables: TablesSpec,
    options: Iterable[TableOptions],
    found: Collection[tuple[str, str]],
    everything: Callable[[], Collection[tuple[str, str]]],
) -> list[str]:
    """Sentences about patterns that match no table of the source, and would if their case were the catalog's. `found`:
    the selected tables (schema, table); `everything`: all tables, asked only where a pattern calls for it."""
    suspects = [(field, p) for field, p in _given(tables, options) if not any(matches(p, *table) for table in found)]
    suspects += [("tables.exclude", p) for p in tables.exclude if any(_meant(p, *table) for table in found)]
    return list(_of_other_case(suspects, everything())) if suspects else []


def _of_other_case(suspects: Iterable[tuple[str, str]], everything: Collection[tuple[str, str]]) -> Iterator[str]:
    for field, pattern in suspects:
        meant = [table for table in everything if _meant(pattern, *table)]
        if not meant or any(matches(pattern, *table) for table in meant):
            continue
        lower = pattern.lower()
        names = [lower] if all(matches(lower, *table) for table in meant) else [".".join(table) for table in meant]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        written = f"{', '.join(names[:_NAMED])}{more}"
        yield f"{field}: pattern {pattern} matches no table because case counts: write {written}"


def _meant(pattern: str, schema: str, table: str) -> bool:
    return matches(pattern.lower(), schema.lower(), table.lower())


def _given(tables: TablesSpec, options: Iterable[TableOptions]) -> list[tuple[str, str]]:
    """Patterns that should match a selected table, with their fields."""
    given = [("tables.include", pattern) for pattern in tables.include]
    return given + [("options[].match", one.match) for one in options]


def idle(tables: TablesSpec, options: Iterable[TableOptions], found: Collection[tuple[str, str]]) -> list[str]:
    """Sentences about patterns that match none of the tables (schema, table) found: right where such tables will be
    created later, and a slip of the pen elsewhere."""
    given = _given(tables, options)
    unmet = [(field, p) for field, p in given if not any(matches(p, *table) for table in found)]
    return [f"{field}: pattern {p} matches no table yet" for field, p in unmet]


def options_of(options: Iterable[TableOptions], schema: str, table: str) -> TableOptions | None:
    """The first options that match the table; None: the defaults."""
    return next((o for o in options if matches(o.match, schema, table)), None)
