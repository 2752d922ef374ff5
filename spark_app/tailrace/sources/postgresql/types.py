"""The types of PostgreSQL's columns: the logical type that log and target have for each. Called by the catalog."""

from tailrace.changelog.types import MAX_PRECISION

LOGICAL = {
    "bool": "bool",
    "int2": "int32",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}
"""The logical types of the types in pg_catalog. `numeric` goes by its digits; all others are the text of their output
function."""
NUMBERS = frozenset(("int2", "int4", "int8", "numeric"))
"""Types that `options[].as` can make a decimal or a double."""
OTHERS = dict.fromkeys(NUMBERS, ("decimal", "double")) | {"uuid": ("binary",), "time": ("time",)}
"""The other types that `options[].as` can choose, besides text, and lists of arrays."""
IN_KEYS = ("binary",)
"""The types among them that a column of the key may have: equal values in equal order."""
TEXT = frozenset(("text", "varchar", "bpchar", "name", "uuid", "citext"))
"""Types that are text, as enums are. What else is not in `LOGICAL` becomes text, as its output function says it."""
AS_TEXT = "exact text of the server's output function"
AS_TEXT_ELSEWHERE = "becomes text where the target does not have the type, and in keys"
"""The reason for a column that is copied into PostgreSQL."""
NOT_UTF8 = "holds no text that is not UTF-8 (`SQL_ASCII` databases)"
"""A limit of all texts."""
_YEARS = "holds no infinity, no BC and no years after 9999"
LIMITS = {
    "date": _YEARS,
    "timestamp": _YEARS,
    "timestamptz": _YEARS,
    "decimal": "holds no NaN",
    "time": "holds no 24:00",
}
"""The limits of each logical type; those of decimals without their digits."""
LISTS = "holds no array of more than one dimension, and none that does not begin at index 1"


def is_known_everywhere(schema: str, name: str) -> bool:
    """True for a type that every PostgreSQL has, with values that mean the same in each."""
    bare = name.removeprefix("_")
    return schema == "pg_catalog" and not bare.startswith("reg") and bare not in ("aclitem", "char")


def limit(logical: str) -> str:
    """The values of PostgreSQL's that a logical type cannot hold; empty: it holds all of them."""
    return LIMITS.get(logical.partition("(")[0], "")


def logical(schema: str, name: str, typmod: int) -> str:
    """The logical type that holds every value exactly, but for `LIMITS`. `schema`, `name`: of the type behind any
    domains."""
    if schema != "pg_catalog":
        return "string"
    return _numeric(typmod) if name == "numeric" else LOGICAL.get(name, "string")


def _numeric(typmod: int) -> str:
    """numeric(p,s) is a decimal where the lake formats have one; all else is exact text."""
    if typmod < 4:
        return "string"
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF
    signed = scale - 0x800 if scale >= 0x400 else scale
    fits = 0 <= signed <= precision <= MAX_PRECISION
    return f"decimal({precision},{signed})" if fits else "string"
