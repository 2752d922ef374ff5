"""Names of tables and columns in BigQuery, which has letters of ASCII, digits and `_` in them: each other character is
written as `__x<hexadecimal>_`, and can be read back. Pure."""

import re

COLUMN_CHARACTERS = 300
TABLE_CHARACTERS = 1024
RESERVED = (
    "_table_",
    "_file_",
    "_partition",
    "_row_timestamp",
    "__root__",
    "_colidentifier",
    "_change_sequence_number",
    "_change_type",
    "_change_timestamp",
)
"""Beginnings that a column's name must not have, in any case."""
_OTHER = re.compile(r"[^A-Za-z0-9_]|_(?=_x)|^[0-9]")
_WRITTEN = re.compile(r"__x([0-9a-f]+)_")


def written(name: str) -> str:
    """The name in BigQuery."""
    if name.lower().startswith(RESERVED):
        name = "\0" + name  # no name has this character
    return _OTHER.sub(lambda found: f"__x{ord(found[0]):x}_", name)


def read(name: str) -> str:
    """The name that is written like this."""
    return _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name).removeprefix("\0")
