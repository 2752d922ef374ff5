"""The row events of one form and one kind -> parts: rows of one operation with typed columns.

Called by `decode.Decoder`. An update whose key changed is two parts, D under the old key and M under the new one,
adjacent in sequence.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records import TableSchema
from tailrace.changelog.segments import DELETE, INSERT, MOVE, UPDATE
from tailrace.errors import LogIncomplete
from tailrace.sources.mysql import values
from tailrace.sources.mysql.log.columns import Buffer, column
from tailrace.sources.mysql.log.events import Kind, UnknownEvent, number, whole
from tailrace.sources.mysql.log.table_map import TableMap
from tailrace.sources.mysql.log.walk import Cells, Places, Walked, walk
from tailrace.sources.mysql.model import MysqlColumn
from tailrace.types import arrow_type

INSERTS = frozenset((Kind.WRITE_ROWS, Kind.WRITE_ROWS_V1))
UPDATES = frozenset((Kind.UPDATE_ROWS, Kind.UPDATE_ROWS_V1))
DELETES = frozenset((Kind.DELETE_ROWS, Kind.DELETE_ROWS_V1))
ROWS = INSERTS | UPDATES | DELETES
_V2 = frozenset((Kind.WRITE_ROWS, Kind.UPDATE_ROWS, Kind.DELETE_ROWS))
_HEAD = 8
"""Bytes of table id and flags; version 2 has the length of more information behind them, itself included."""


@dataclass(frozen=True)
class RowForm:
    """How the rows of one table map become rows of one schema version."""

    map: TableMap
    schema: TableSchema
    columns: tuple[MysqlColumn, ...]
    """Of the schema's columns, in its order."""
    places: tuple[int, ...]
    """Of each, its place in the rows."""


@dataclass(frozen=True)
class Part:
    """Rows of one operation."""

    op: str
    event: Places
    """Of each row, its event in the block."""
    ordinal: Places
    """Of each row, the sequences that its event took before it."""
    columns: list[pa.Array]
    """In the schema's order."""
    old_key: list[pa.Array] | None = None
    """M only: values of the key columns, in key order."""


@dataclass(frozen=True)
class Span:
    """Events of one kind and one form: where they stand in the buffer."""

    form: RowForm
    kind: int
    event: Places
    starts: Places
    ends: Places


def decode(buffer: Buffer, span: Span) -> tuple[list[Part], NDArray[np.int64]]:
    """The parts, and how many sequences each event took. `TableStop` where an image or a value cannot be taken over."""
    columns, images = span.form.map.columns, 2 if span.kind in UPDATES else 1
    first = _first_rows(buffer, span, images)
    walked = walk(buffer.bytes, first, span.ends, columns, images)
    rows = len(walked.event)
    if not rows:
        return [], np.zeros(len(span.event), np.int64)
    if span.kind in UPDATES:
        return _updates(buffer, span, walked)
    counts = np.bincount(walked.event, minlength=len(span.event))
    op = INSERT if span.kind in INSERTS else DELETE
    part = Part(op, span.event[walked.event], _ordinals(walked.event, counts), [])
    filled = _image(buffer, span.form, walked.images[0], keys_only=op == DELETE)
    return [Part(op, part.event, part.ordinal, filled)], counts


def _updates(buffer: Buffer, span: Span, walked: Walked) -> tuple[list[Part], NDArray[np.int64]]:
    form = span.form
    before = _image(buffer, form, walked.images[0], keys_only=True)
    after = _image(buffer, form, walked.images[1], keys_only=False)
    moved = _moved(form.schema, before, after)
    takes = 1 + moved.astype(np.int64)
    counts = np.bincount(walked.event, weights=takes, minlength=len(span.event)).astype(np.int64)
    ordinal = _ordinals(walked.event, counts, takes)
    event = span.event[walked.event]
    if not moved.any():
        return [Part(UPDATE, event, ordinal, after)], counts
    stayed, went = pa.array(np.flatnonzero(~moved)), pa.array(np.flatnonzero(moved))
    parts = [Part(UPDATE, event[~moved], ordinal[~moved], [a.take(stayed) for a in after])]
    old = [a.take(went) for a in before]
    parts.append(Part(DELETE, event[moved], ordinal[moved], old))
    places = {c.id: i for i, c in enumerate(form.schema.columns)}
    old_key = [old[places[c.id]] for c in form.schema.key_columns]
    parts.append(Part(MOVE, event[moved], ordinal[moved] + 1, [a.take(went) for a in after], old_key))
    return [p for p in parts if len(p.event)], counts


def _moved(schema: TableSchema, before: list[pa.Array], after: list[pa.Array]) -> NDArray[np.bool_]:
    moved = np.zeros(len(after[0]), np.bool_)
    for place, known in enumerate(schema.columns):
        if known.key is not None:
            differs = pc.fill_null(pc.not_equal(before[place], after[place]), False)
            moved |= differs.to_numpy(zero_copy_only=False)
    return moved


def _image(buffer: Buffer, form: RowForm, cells: list[Cells], keys_only: bool) -> list[pa.Array]:
    """`keys_only`: the other columns are null."""
    found = []
    for known, place, schema_column in zip(form.columns, form.places, form.schema.columns, strict=True):
        if keys_only and schema_column.key is None:
            found.append(pa.nulls(len(cells[place].at), arrow_type(schema_column.type)))
            continue
        with values.fitted(form.schema.name, known.name, known.form):
            found.append(column(buffer, form.map.columns[place], known, cells[place]))
    return found


def _ordinals(event: Places, counts: Places, takes: Places | None = None) -> Places:
    """Of each row the sequences that rows before it in the same event took."""
    ends = np.arange(len(event)) if takes is None else np.cumsum(takes) - takes
    ordinals: Places = ends - (np.cumsum(counts) - counts)[event]
    return ordinals


def _first_rows(buffer: Buffer, span: Span, images: int) -> Places:
    """Where the rows begin; every image must have every column."""
    at: Places = span.starts + _HEAD
    if (span.ends - at < 4).any():
        raise UnknownEvent("the server sent a row event that is not whole")
    if span.kind in _V2:
        at = at + buffer.numbers(at, "<u2").astype(np.int64)
    count = len(span.form.map.columns)
    bitmap = (count + 7) // 8
    if (at + 3 + bitmap * images > span.ends + 3).any():
        raise UnknownEvent("the server sent a row event that is not whole")
    with whole("row"):
        sent, behind = number(buffer.data, int(at[0]))
    if sent != count or not (buffer.bytes[at] == buffer.bytes[at[0]]).all():
        raise UnknownEvent("the server sent a row with other columns than its table")
    at = at + (behind - int(at[0]))
    full = np.packbits(np.ones(count, np.uint8), bitorder="little")
    for i in range(bitmap * images):
        if not ((buffer.bytes[at + i] & full[i % bitmap]) == full[i % bitmap]).all():
            raise _partial(span.form.schema.name)
    return at + bitmap * images


def _partial(table: str) -> LogIncomplete:
    return LogIncomplete(
        table,
        f"a change of {table} came without all columns: a session has set binlog_row_image",
        "Set binlog_row_image = FULL for the server and for that session; then resync the table.",
    )
