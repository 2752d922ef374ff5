"""The row events of one form and one kind -> parts: rows of one operation with typed columns.

Called by `decode.Decoder`. An update whose key changed is two parts, D under the old key and M under the new one,
adjacent in sequence.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records import Nulled, TableSchema, with_nulled
from tailrace.changelog.segments import DELETE, INSERT, MOVE, UPDATE
from tailrace.errors import LogIncomplete
from tailrace.sources.mysql import values
from tailrace.sources.mysql.log.columns import Buffer, column
from tailrace.sources.mysql.log.events import Kind, UnknownEvent, number, whole
from tailrace.sources.mysql.log.table_map import TableMap
from tailrace.sources.mysql.log.walk import Cells, Places, walk
from tailrace.sources.mysql.model import MysqlColumn
from tailrace.types import arrow_type

INSERTS = frozenset((Kind.WRITE_ROWS, Kind.WRITE_ROWS_V1))
UPDATES = frozenset((Kind.UPDATE_ROWS, Kind.UPDATE_ROWS_V1))
DELETES = frozenset((Kind.DELETE_ROWS, Kind.DELETE_ROWS_V1))
ROWS = INSERTS | UPDATES | DELETES
_V2 = frozenset((Kind.WRITE_ROWS, Kind.UPDATE_ROWS, Kind.DELETE_ROWS))
Bits = NDArray[np.bool_]
_HEAD = 8
"""Bytes of table id and flags; version 2 has the length of more information behind them, itself included."""


@dataclass(frozen=True)
class RowForm:
    """How the rows of one table map become rows of one schema version."""

    map: TableMap
    schema: TableSchema
    columns: tuple[MysqlColumn, ...]
    """The source's columns for the schema's columns, in its order."""
    places: tuple[int | None, ...]
    """The place of each in the rows. None: they do not have it as the version does, and it is NULL in them."""


@dataclass(frozen=True)
class Part:
    """Rows of one operation."""

    op: str
    event: Places
    """The event in the block of each row."""
    ordinal: Places
    """The number of sequences that its event took before each row."""
    columns: list[pa.Array]
    """The columns in the schema's order."""
    old_key: list[pa.Array] | None = None
    """M only: values of the key columns, in key order."""
    nulled: Nulled = ()
    """The counts of these rows, or of those of the update that it is a part of."""


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
    first, present = _first_rows(buffer, span)
    if (present == present[0]).all():
        return _alike(buffer, span, first, present[0])
    parts, counts = list[Part](), np.zeros(len(span.event), np.int64)
    kinds, kind = np.unique(present, axis=0, return_inverse=True)
    for i, having in enumerate(kinds):
        chosen = np.flatnonzero(kind.ravel() == i)
        some = replace(span, event=span.event[chosen], starts=span.starts[chosen], ends=span.ends[chosen])
        found, counts[chosen] = _alike(buffer, some, first[chosen], having)
        parts += found
    return parts, counts


def _alike(buffer: Buffer, span: Span, first: Places, present: Bits) -> tuple[list[Part], NDArray[np.int64]]:
    """The parts of events whose images have equal columns."""
    images = [np.flatnonzero(having) for having in present]
    columns = [[span.form.map.columns[place] for place in image] for image in images]
    walked = walk(buffer.bytes, first, span.ends, columns)
    rows = len(walked.event)
    if not rows:
        return [], np.zeros(len(span.event), np.int64)
    cells = [dict(zip(map(int, p), c, strict=True)) for p, c in zip(images, walked.images, strict=True)]
    if span.kind in UPDATES:
        return _updates(buffer, span, walked.event, cells)
    counts = np.bincount(walked.event, minlength=len(span.event))
    op = INSERT if span.kind in INSERTS else DELETE
    filled = _image(buffer, span.form, cells[0], rows, keys_only=op == DELETE)
    nulled = () if op == DELETE else _nulled(span.form, cells[0], filled)
    return [Part(op, span.event[walked.event], _ordinals(walked.event, counts), filled, nulled=nulled)], counts


def _updates(
    buffer: Buffer, span: Span, walked: Places, cells: list[dict[int, Cells]]
) -> tuple[list[Part], NDArray[np.int64]]:
    """`walked`: of each row, its event in the span."""
    form = span.form
    before = _image(buffer, form, cells[0], len(walked), keys_only=True)
    # A column that is only in the image before has not changed.
    whole = cells[0] | cells[1]
    after = _image(buffer, form, whole, len(walked), keys_only=False)
    moved = _moved(form.schema, before, after)
    takes = 1 + moved.astype(np.int64)
    counts = np.bincount(walked, weights=takes, minlength=len(span.event)).astype(np.int64)
    ordinal = _ordinals(walked, counts, takes)
    event = span.event[walked]
    nulled = _nulled(form, whole, after)
    if not moved.any():
        return [Part(UPDATE, event, ordinal, after, nulled=nulled)], counts
    stayed, went = pa.array(np.flatnonzero(~moved)), pa.array(np.flatnonzero(moved))
    parts = [Part(UPDATE, event[~moved], ordinal[~moved], [a.take(stayed) for a in after])]
    old = [a.take(went) for a in before]
    parts.append(Part(DELETE, event[moved], ordinal[moved], old))
    places = {c.id: i for i, c in enumerate(form.schema.columns)}
    old_key = [old[places[c.id]] for c in form.schema.key_columns]
    parts.append(Part(MOVE, event[moved], ordinal[moved] + 1, [a.take(went) for a in after], old_key, nulled))
    return [p for p in parts if len(p.event)], counts


def _moved(schema: TableSchema, before: list[pa.Array], after: list[pa.Array]) -> Bits:
    moved = np.zeros(len(after[0]), np.bool_)
    for place, known in enumerate(schema.columns):
        if known.key is not None:
            differs = pc.fill_null(pc.not_equal(before[place], after[place]), False)
            moved |= differs.to_numpy(zero_copy_only=False)
    return moved


def _image(buffer: Buffer, form: RowForm, cells: dict[int, Cells], rows: int, keys_only: bool) -> list[pa.Array]:
    """`cells`: by place. `keys_only`: the other columns are null."""
    found = []
    for known, place, schema_column in zip(form.columns, form.places, form.schema.columns, strict=True):
        if place is None or (keys_only and schema_column.key is None):
            found.append(pa.nulls(rows, arrow_type(schema_column.type)))
            continue
        with values.fitted(form.schema.name, known.name, known.form, schema_column.key is not None):
            found.append(column(buffer, form.map.columns[place], known, cells[place]))
    return found


def _nulled(form: RowForm, cells: dict[int, Cells], typed: list[pa.Array]) -> Nulled:
    """The counts of an image with all columns."""
    counts = []
    for known, place, array in zip(form.columns, form.places, typed, strict=True):
        if place is None:
            continue
        valid = cells[place].valid
        counts.append((known.name, array.null_count - (0 if valid is None else int((~valid).sum()))))
    return with_nulled((), counts)


def _ordinals(event: Places, counts: Places, takes: Places | None = None) -> Places:
    """The number of sequences, for each row, that rows before it in the same event took."""
    ends = np.arange(len(event)) if takes is None else np.cumsum(takes) - takes
    ordinals: Places = ends - (np.cumsum(counts) - counts)[event]
    return ordinals


def _first_rows(buffer: Buffer, span: Span) -> tuple[Places, Bits]:
    """The places where the rows begin; and the columns that are present in each event and image. Each image must have
    those that are needed: before a change the key, after it every captured column (or what has not changed before it,
    `FULL_NODUP`)."""
    at: Places = span.starts + _HEAD
    if (span.ends - at < 4).any():
        raise UnknownEvent("the server sent a row event that is not whole")
    if span.kind in _V2:
        at = at + buffer.numbers(at, "<u2").astype(np.int64)
    images = 2 if span.kind in UPDATES else 1
    count = len(span.form.map.columns)
    bitmap = (count + 7) // 8
    if (at + 3 + bitmap * images > span.ends + 3).any():
        raise UnknownEvent("the server sent a row event that is not whole")
    with whole("row"):
        sent, behind = number(buffer.data, int(at[0]))
    if sent != count or not (buffer.bytes[at] == buffer.bytes[at[0]]).all():
        raise UnknownEvent("the server sent a row with other columns than its table")
    at = at + (behind - int(at[0]))
    raw = buffer.bytes[at[:, None] + np.arange(bitmap * images)].reshape(len(at), images, bitmap)
    present = np.unpackbits(raw, axis=2, count=count, bitorder="little").astype(np.bool_)
    captured = [(p, c) for p, c in zip(span.form.places, span.form.schema.columns, strict=True) if p is not None]
    keys = [p for p, c in captured if c.key is not None]
    for image, needed in enumerate(_needed(span.kind, keys, [p for p, _ in captured])):
        lacking = [place for place in needed if not present[:, : image + 1, place].any(axis=1).all()]
        if lacking:
            raise _partial(span.form, lacking)
    return at + bitmap * images, present


def _needed(kind: int, keys: list[int], captured: list[int]) -> list[list[int]]:
    """Places in each image."""
    if kind in UPDATES:
        return [keys, captured]
    return [captured if kind in INSERTS else keys]


def _partial(form: RowForm, places: list[int]) -> LogIncomplete:
    names = dict(zip(form.places, form.columns, strict=True))
    columns, table = ", ".join(repr(names[place].name) for place in places), form.schema.name
    return LogIncomplete(
        table,
        f"a change of {table} came without the column {columns}: a session has set binlog_row_image, or the column is"
        " generated and MariaDB does not log it",
        "Set binlog_row_image = FULL for the server and for that session; then resync the table.",
    )
