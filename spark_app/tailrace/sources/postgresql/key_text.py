"""Keys between the server's text and the change log's (`changelog.keys`). Called by `chunks` and `keys`.

What the log's types can hold goes through the codec of rows, so a key has the same value as its row. Any other value
(`infinity`, a year BC) can only be a bound, and stays as the server writes it.
"""

from collections.abc import Sequence

import pyarrow as pa

from tailrace.changelog import keys
from tailrace.changelog.records.terms import Key
from tailrace.errors import ValueUnsupported
from tailrace.sources.postgresql.codec import decode
from tailrace.sources.postgresql.model import CatalogColumn

_HEX = "\\x"


def canonical(columns: Sequence[CatalogColumn], rows: Sequence[Sequence[str]]) -> tuple[Key, ...]:
    """The canonical keys of rows of the server's texts of the key columns."""
    by_column = zip(columns, zip(*rows, strict=True), strict=True)
    return tuple(zip(*(_canonical(column.logical, texts) for column, texts in by_column), strict=True))


def _canonical(logical: str, texts: Sequence[str]) -> Sequence[str]:
    if logical == "string":
        return texts
    try:
        return keys.texts(decode(pa.array([text.encode() for text in texts], pa.large_binary()), logical, "", ""))
    except ValueUnsupported:
        if len(texts) == 1:
            return texts
        return [text for one in texts for text in _canonical(logical, [one])]


def server_text(column: CatalogColumn, text: str) -> str:
    """The text that the server reads as the key's value; it understands more spellings of people than the log has
    (`yes`, ` 01`)."""
    if column.logical != "binary":
        return text
    bare = text.removeprefix(_HEX)
    return bare if column.base_type[1] == "uuid" else _HEX + bare
