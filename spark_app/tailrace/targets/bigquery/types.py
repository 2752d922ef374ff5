"""The types of columns in BigQuery: the nearest that holds every value of a logical type exactly. Pure."""

from tailrace.changelog.records.terms import Column
from tailrace.changelog.types import decimal_parts

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
"""The type of lists and structs, as JSON, and of decimals with more digits than BIGNUMERIC has on a side."""
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


def type_of(column: Column) -> str:
    parts = decimal_parts(column.type)
    if parts is not None:
        precision, scale = parts
        for kind, before, behind in ((NUMERIC, 29, 9), (BIGNUMERIC, 38, 38)):
            if scale <= behind and precision - scale <= before:
                return kind
    return TYPES.get(column.type, TEXT)


def widens(before: str, after: str) -> bool:
    """True if a column of the first type can be given the second without being read."""
    return after in WIDER.get(before, ())


def api_type(kind: str) -> str:
    """The type in a schema of the interface, which has parameters elsewhere; it has all digits without them."""
    return OF_STATEMENTS.get(kind, kind).partition("(")[0]


def statement_type(of_the_api: str) -> str:
    """The type that `api_type` has made into this."""
    return OF_THE_API.get(of_the_api, of_the_api)
