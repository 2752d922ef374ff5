"""The types of columns in Snowflake: the nearest that holds every value of a logical type exactly. Pure."""

import re

from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import decimal_parts

TEXT, BINARY = "VARCHAR", "BINARY"
"""`TEXT`: also the type of lists and structs, as JSON (a VARIANT changes digits and the order of fields), and of
decimals with more than 38 digits."""
TYPES = {
    "bool": "BOOLEAN",
    "int32": "NUMBER(10,0)",
    "int64": "NUMBER(19,0)",
    "float32": "FLOAT",
    "float64": "FLOAT",
    "string": TEXT,
    "binary": BINARY,
    "date": "DATE",
    "time": "TIME(6)",
    "timestamp": "TIMESTAMP_NTZ(6)",
    "timestamptz": "TIMESTAMP_LTZ(6)",
}
MOST_DIGITS, MOST_SCALE = 38, 37
_NUMBER = re.compile(r"NUMBER\((\d+),(\d+)\)")
MOST_BYTES = {TEXT: 16 << 20, BINARY: 8 << 20}
"""Bytes of a value of a type without a length."""


def type_of(column: Column) -> str:
    parts = decimal_parts(column.type)
    if parts is not None and parts[0] <= MOST_DIGITS and 0 <= parts[1] <= MOST_SCALE:
        return f"NUMBER({parts[0]},{parts[1]})"
    return TYPES.get(column.type, TEXT)


def widens(before: str, after: str) -> bool:
    """True if a column of the first type can be given the second without being read: a number of more digits, as many
    of them behind the point."""
    old, new = _NUMBER.fullmatch(before), _NUMBER.fullmatch(after)
    return old is not None and new is not None and old[2] == new[2] and int(old[1]) <= int(new[1])
