"""The types of columns in BigQuery: the nearest that holds every value of a logical type exactly. Pure."""

from collections.abc import Mapping
from typing import Any

from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import decimal_parts, element_of

NUMERIC, BIGNUMERIC = "NUMERIC(38,9)", "BIGNUMERIC(76,38)"
TYPES = {
    "bool": "BOOL",
    "int32": "INT64",
    "int64": "INT64",
    "float32": "FLOAT64",
    "float64": "FLOAT64",
    "string": "STRING",
    "binary": "BYTES",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "DATETIME",
    "timestamptz": "TIMESTAMP",
}
TEXT = "STRING"
"""The type of lists, unless they are arrays, and structs, as JSON, and of decimals with more digits on a side than
BIGNUMERIC has."""
OF_THE_API = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "NUMERIC": NUMERIC, "BIGNUMERIC": BIGNUMERIC}
"""Types as the interface tells them, where it does so in another way."""
OF_STATEMENTS = {"bigint": "INT64"}
CLUSTERED = frozenset(("INT64", "STRING", "DATE", "DATETIME", "TIMESTAMP", "BOOL", NUMERIC, BIGNUMERIC))
"""Types by which a table can be clustered."""
WIDER = {"INT64": (NUMERIC, BIGNUMERIC), NUMERIC: (BIGNUMERIC,)}
"""Types that a column can get without being read, and that hold all its values."""
MOST_CLUSTERED = 4
"""Columns."""
MOST_COLUMNS = 10_000
REPEATED = "REPEATED"
_ARRAY = "ARRAY<"


def type_of(column: Column, *, repeated: bool = False) -> str:
    """`repeated`: lists are arrays."""
    element = element_of(column.type) if repeated else None
    return _kind(column.type) if element is None else f"{_ARRAY}{_kind(element)}>"


def _kind(logical: str) -> str:
    parts = decimal_parts(logical)
    if parts is not None:
        precision, scale = parts
        for kind, before, behind in ((NUMERIC, 29, 9), (BIGNUMERIC, 38, 38)):
            if scale <= behind and precision - scale <= before:
                return kind
    return TYPES.get(logical, TEXT)


def element_kind(kind: str) -> str | None:
    """The type of the elements of an array; None: another type."""
    return kind[len(_ARRAY) : -1] if kind.startswith(_ARRAY) else None


def widens(before: str, after: str) -> bool:
    """True if a column of the first type can be given the second without being read."""
    return after in WIDER.get(before, ())


def api_type(kind: str) -> str:
    """The type in a schema of the interface, which has parameters elsewhere; it has all digits without them."""
    return OF_STATEMENTS.get(kind, kind).partition("(")[0]


def statement_type(of_the_api: str) -> str:
    """The type that `api_type` has made into this."""
    return OF_THE_API.get(of_the_api, of_the_api)


def field_of(name: str, kind: str) -> dict[str, str]:
    """A column in a schema of the interface, in which an array is a mode."""
    element = element_kind(kind)
    if element is None:
        return {"name": name, "type": api_type(kind)}
    return {"name": name, "type": api_type(element), "mode": REPEATED}


def kind_of(field: Mapping[str, Any]) -> str:
    """The type of the column for which this field stands."""
    kind = statement_type(str(field["type"]))
    return f"{_ARRAY}{kind}>" if field.get("mode") == REPEATED else kind
