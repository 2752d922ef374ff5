"""Types of the manifest (`options[].as`; `asText` is its short form for text): what is the same for every product.

Asked by the catalogs. What a value becomes in such a type is decided by the codec of the product, as for all types.
"""

from collections.abc import Collection

from tailrace.changelog.types import decimal_parts, inner_types
from tailrace.contract.resources import TableOptions
from tailrace.errors import ReadRefused

_LOGICAL = {"text": "string", "double": "float64"}
_NESTED = {"list": "list<string>", "struct": 'struct<"":string>'}
"""Types that stand for these where a column's type can be none."""
_DIGITS = {"int32": (10, 0), "int64": (19, 0)}


def requested(options: TableOptions | None, column: str, nested: str | None = None) -> str | None:
    """The logical type that the options give a column; None: that of its type in the source. `nested`: its type as a
    list or a struct, if it can be one."""
    if options is None:
        return None
    if column in options.as_text:
        return "string"
    found = options.as_.get(column)
    if found in _NESTED:
        return nested if nested is not None and named(nested) == found else _NESTED[found]
    return None if found is None else _LOGICAL.get(found, found)


def named(logical: str) -> str:
    """The type as users write it."""
    if inner_types(logical):
        return logical.partition("<")[0]
    return next((name for name, found in _LOGICAL.items() if found == logical), logical)


def allowed(logical: str, native: str | None, others: Collection[str]) -> bool:
    """True if a column can be copied as `logical`. `native`: what its type becomes by itself; `others`: what else it
    can become, as users write it, a decimal without its digits."""
    return logical in ("string", native) or named(logical).partition("(")[0] in others


def refused(table: str, column: str, source_type: str, logical: str, why: str) -> ReadRefused:
    """The error for a column that is not `allowed`."""
    what = f"options[].as: column {column!r} of {table} cannot be copied as {named(logical)}"
    return ReadRefused(table, f"{what}: its type is {source_type}{why}", way_out(column))


def way_out(column: str) -> str:
    return f"Remove {column} from as, or write {column}: text."


def loss(logical: str, native: str, finite: bool = False) -> tuple[str, str]:
    """The loss of a column's numbers in the type that the options give it, and `limit`; empty: none."""
    rounded = decimal_parts(logical) is None and native != "int32"
    return "rounded to the nearest double" if rounded else "", limit(logical, native, finite)


def limit(logical: str, native: str, finite: bool = False) -> str:
    """The numbers that the type that the options give a column cannot hold; empty: it holds all that `native` has.
    `finite`: its values are numbers within the range of doubles."""
    parts = decimal_parts(logical)
    if parts is None:
        return "" if finite or native in ("int32", "int64") else "holds no number beyond the range of doubles"
    whole, fraction = _digits(native)
    if whole <= parts[0] - parts[1] and fraction <= parts[1]:
        return "holds no NaN" if native.startswith("decimal") and not finite else ""
    others = "" if finite else "no NaN, no infinity and "
    return f"holds {others}no more than {parts[0] - parts[1]} digits before and {parts[1]} after the point"


def _digits(native: str) -> tuple[float, float]:
    """At most so many before and after the point."""
    parts = decimal_parts(native)
    unlimited = float("inf"), float("inf")
    return _DIGITS.get(native, unlimited) if parts is None else (parts[0] - parts[1], parts[1])
