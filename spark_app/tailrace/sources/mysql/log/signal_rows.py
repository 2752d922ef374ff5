"""Rows that were inserted into the signal table. Called by `decode.Decoder`.

By position and as the log describes them: the catalog is not asked, which may be ahead of the log.
"""

from collections.abc import Mapping

import pyarrow as pa

from tailrace.sources.mysql import charsets
from tailrace.sources.mysql.log import json_binary
from tailrace.sources.mysql.log import table_map as wire
from tailrace.sources.mysql.log.columns import Buffer
from tailrace.sources.mysql.log.rows import Inserted, inserted
from tailrace.sources.mysql.log.table_map import TableMap
from tailrace.sources.mysql.log.walk import Cells
from tailrace.sources.mysql.values import Unrepresentable
from tailrace.sources.signals import COLUMNS, SignalRow, signal_row, wrong_columns

_TEXTS = frozenset((wire.VARCHAR, wire.STRING, wire.BLOB, wire.JSON))


class SignalRows:
    def __init__(self, charset_names: Mapping[int, str]) -> None:
        """`charset_names`: by the number of a collation."""
        self._charsets = charset_names

    def of(self, buffer: Buffer, form: TableMap, kind: int, start: int, end: int) -> list[tuple[int, SignalRow]]:
        """The rows of one event, each with its place among them."""
        why = _unreadable(form)
        if why is not None:
            return [(0, why)]
        found = inserted(buffer, form, kind, start, end)
        try:
            columns = [self._texts(buffer, form, place, found) for place in range(COLUMNS)]
        except Unrepresentable:
            return [(0, SignalRow(fault="a value is no text in its column's character set. Fix: Insert it again."))]
        rows = [signal_row(values) for values in zip(*columns, strict=True)]
        return [(place, row) for place, row in enumerate(rows) if row is not None]

    def _texts(self, buffer: Buffer, form: TableMap, place: int, found: Inserted) -> list[str | None]:
        cells: Cells | None = found.cells.get(place)
        if cells is None:  # the session's row image leaves out what gets its default
            return [None] * found.rows
        raw, kind, collation = buffer.pieces(cells), form.columns[place].kind, form.collations[place]
        if kind == wire.JSON:
            texts: pa.Array = json_binary.texts(raw)
        else:
            texts = charsets.decoded(raw, None if collation is None else self._charsets.get(collation))
        return [None if text is None else str(text) for text in texts.to_pylist()]


def _unreadable(form: TableMap) -> SignalRow | None:
    if len(form.columns) != COLUMNS:
        return wrong_columns(len(form.columns))
    others = [place for place, column in enumerate(form.columns) if column.kind not in _TEXTS]
    if not others:
        return None
    return SignalRow(
        fault=f"column {others[0] + 1} of the signal table is no text. Fix: Give it the type varchar(255)."
    )
