"""The types of columns in MySQL and MariaDB: the nearest that holds every value of a logical type exactly. Pure."""

import re
from collections.abc import Sequence
from itertools import islice

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.changelog.types import decimal_parts

TYPES = {
    "bool": "tinyint(1)",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "string": "longtext",
    "binary": "longblob",
    "date": "date",
    "time": "time(6)",
    "timestamp": "datetime(6)",
    "timestamptz": "datetime(6)",
}
"""Instants are in UTC: `timestamp` ends in 2038."""
TEXT = "longtext"
"""The type of lists and structs: a column of type `json` would change the order of fields and the digits of numbers."""
MOST_SCALE = 30
"""Digits behind the point that MySQL's decimals have."""
KEY_BYTES = 3072
"""InnoDB's limit of a primary key."""
INDEX_COLUMNS = 16
"""Most columns of an index. A key can have as many."""
INDEX_BYTES = 3000
"""Bytes of these that a key has in an index with a time behind it."""
FIXED_BYTES = 20
"""No other type takes more in a key."""
CHARACTER_BYTES = 4
NO_KEYS = frozenset(
    ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json")
)
"""Types of which a key can only have the beginning."""
COLLATE = " COLLATE "
_OF_ANY_LENGTH = {"longtext": ("varchar", CHARACTER_BYTES), "longblob": ("varbinary", 1)}


def type_of(schema: TableSchema, column: Column) -> str:
    """The type of a column; texts of a key have the length that its other columns leave."""
    kind = _general(column.type)
    if column.key is None or kind not in _OF_ANY_LENGTH:
        return kind
    kinds = [_general(each.type) for each in schema.key_columns]
    lengths = sum(each in _OF_ANY_LENGTH for each in kinds)
    most = (KEY_BYTES - FIXED_BYTES * (len(kinds) - lengths)) // lengths
    name, size = _OF_ANY_LENGTH[kind]
    return f"{name}({most // size})"


def word(kind: str) -> str:
    """The type's name alone."""
    return re.split(r"[ (]", kind, maxsplit=1)[0]


def open_index(opened: Sequence[tuple[str, str]]) -> list[str]:
    """The index by which the open rows are found where all versions stay, as parts of a table's definition. `opened`:
    the columns of the key and the one that is NULL in open rows, with their types, quoted. A key may take all of the
    space that an index has: of long texts it has the beginning."""
    if not opened:
        return []
    *key, (end, _) = opened
    most = INDEX_BYTES // len(key) // CHARACTER_BYTES
    names = (f"{name}({most})" if _length(kind) > most else name for name, kind in key)
    return [f"KEY _tailrace_open ({', '.join([*islice(names, INDEX_COLUMNS - 1), end])})"]


def _length(kind: str) -> int:
    """The characters or bytes of a text's type; 0: it is none."""
    found = re.match(r"(?:var)?(?:char|binary)\((\d+)\)", kind)
    return int(found[1]) if found else 0


def own_type(column: Column) -> str | None:
    """The type that the column has in its MySQL or MariaDB; None: its values come in another form, or a key cannot
    have it. In older servers a `timestamp` is NOT NULL unless it says otherwise."""
    kind = column.behind
    if kind is None or (column.key is not None and word(kind) in NO_KEYS):
        return None
    return f"{kind} NULL" if word(kind) == "timestamp" and column.key is None else kind


def labels(kind: str) -> list[str]:
    """The labels of an enum of `own_type`."""
    found = re.findall(r"'((?:[^']|'')*)'", kind.partition("(")[2])
    return [label.replace("''", "'") for label in found]


def _general(logical: str) -> str:
    parts = decimal_parts(logical)
    if parts is not None and parts[1] <= MOST_SCALE:
        return f"decimal({parts[0]},{parts[1]})"
    return TYPES.get(logical, TEXT)
