"""The row events of one form and one kind -> parts: rows of one operation with typed columns.

Called by `decode.Decoder`. An update whose key changed is two parts, D under the old key and M under the new one,
adjacent in sequence.

What neither image of an update has (`binlog_row_image`), it has not changed: that stays as it is in the target. A row
that changed without the log saying to what is an `I` that lacks the column, and is then read again by its key: an
inserted row lacks what got its default; a document came in parts, without the whole one before; and MariaDB logs a
REPLACE that finds a row as an update, which lacks what got its default, too.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.changelog.records.terms import Nulled, TableSchema, with_nulled
from tailrace.changelog.segments import DELETE, INSERT, MOVE, UPDATE
from tailrace.changelog.types import arrow_type
from tailrace.errors import LogIncomplete
from tailrace.sources.mysql import values
from tailrace.sources.mysql.log import json_differences
from tailrace.sources.mysql.log.blocks import UNCERTAIN
from tailrace.sources.mysql.log.columns import Buffer, column
from tailrace.sources.mysql.log.events import Kind, UnknownEvent, number, whole
from tailrace.sources.mysql.log.table_map import JSON, TableMap
from tailrace.sources.mysql.log.walk import Cells, Documents, Places, walk
from tailrace.sources.mysql.model import MysqlColumn

INSERTS = frozenset((Kind.WRITE_ROWS, Kind.WRITE_ROWS_V1))
UPDATES = frozenset((Kind.UPDATE_ROWS, Kind.UPDATE_ROWS_V1, Kind.PARTIAL_UPDATE_ROWS))
DELETES = frozenset((Kind.DELETE_ROWS, Kind.DELETE_ROWS_V1))
ROWS = INSERTS | UPDATES | DELETES
_V2 = frozenset((Kind.WRITE_ROWS, Kind.UPDATE_ROWS, Kind.DELETE_ROWS, Kind.PARTIAL_UPDATE_ROWS))
"""MySQL writes the first version, MariaDB's only one, with `log_bin_use_v1_row_events`."""
Bits = NDArray[np.bool_]
ROW_IMAGE_FIX = "Set binlog_row_image = FULL for the server and for that session; then resync the table."
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
    unchanged: tuple[int, ...] = ()
    """The places in the schema of the columns that the log did not carry."""
    may_have_moved: bool = False
    """Its rows may have got another key, which the log does not have."""


@dataclass(frozen=True)
class Span:
    """Events of one kind and one form: where they stand in the buffer."""

    form: RowForm
    kind: int
    event: Places
    starts: Places
    ends: Places


@dataclass(frozen=True)
class Inserted:
    """The values of an event with inserted rows."""

    rows: int
    cells: dict[int, Cells]
    """The values by the place of the column; one that the event does not have is missing."""


def inserted(buffer: Buffer, table: TableMap, kind: int, start: int, end: int) -> Inserted:
    """One event, as its table map describes it."""
    none = TableSchema(table_id=0, version=0, schema_name=table.schema_name, table_name=table.table_name, columns=())
    form = RowForm(table, none, (), ())
    places = (np.array([place], np.int64) for place in (0, start, end))
    span = Span(form, kind, *places)
    first, present = _first_rows(buffer, span)
    image = np.flatnonzero(present[0][0])
    walked = walk(buffer.bytes, first, span.ends, [[table.columns[place] for place in image]], None)
    cells = dict(zip(map(int, image), walked.images[0], strict=True)) if len(walked.event) else {}
    return Inserted(len(walked.event), cells)


def decode(buffer: Buffer, span: Span) -> tuple[list[Part], NDArray[np.int64]]:
    """The parts, and how many sequences each event took. `TableStop` where an image or a value cannot be taken over."""
    if span.kind < UNCERTAIN:
        return _decoded(buffer, span)
    parts, counts = _decoded(buffer, replace(span, kind=span.kind - UNCERTAIN))
    return [_unknown(span.form, part) for part in parts], counts


def _unknown(form: RowForm, part: Part) -> Part:
    """Rows of the same keys, of which nothing else is known."""
    columns = form.schema.columns
    lacking = tuple(i for i, column in enumerate(columns) if column.key is None)
    arrays = [pa.nulls(len(a), a.type) if i in lacking else a for i, a in enumerate(part.columns)]
    return replace(part, op=INSERT, columns=arrays, old_key=None, nulled=(), unchanged=lacking)


def _decoded(buffer: Buffer, span: Span) -> tuple[list[Part], NDArray[np.int64]]:
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
    documents = _documents(span.form.map, images[-1]) if span.kind == Kind.PARTIAL_UPDATE_ROWS else None
    walked = walk(buffer.bytes, first, span.ends, columns, documents)
    rows = len(walked.event)
    if not rows:
        return [], np.zeros(len(span.event), np.int64)
    cells = [dict(zip(map(int, p), c, strict=True)) for p, c in zip(images, walked.images, strict=True)]
    if span.kind in UPDATES:
        return _updates(buffer, span, walked.event, cells)
    counts = np.bincount(walked.event, minlength=len(span.event))
    op = INSERT if span.kind in INSERTS else DELETE
    filled = _image(buffer, span.form, cells[0], rows, keys_only=op == DELETE)
    if op == DELETE:
        return [Part(op, span.event[walked.event], _ordinals(walked.event, counts), filled)], counts
    nulled, lacking = _nulled(span.form, cells[0], filled), _lacking(span.form, cells[0])
    return [Part(op, span.event[walked.event], _ordinals(walked.event, counts), filled, None, nulled, lacking)], counts


def _documents(table: TableMap, image: Places) -> Documents:
    numbers = {place: i for i, place in enumerate(p for p, c in enumerate(table.columns) if c.kind == JSON)}
    in_image = {at: numbers[place] for at, place in enumerate(image.tolist()) if place in numbers}
    return Documents(in_image, len(numbers))


def _updates(
    buffer: Buffer, span: Span, walked: Places, cells: list[dict[int, Cells]]
) -> tuple[list[Part], NDArray[np.int64]]:
    """`walked`: of each row, its event in the span."""
    form = span.form
    before = _image(buffer, form, cells[0], len(walked), keys_only=True)
    # A column that is only in the image before has not changed.
    sent = cells[0] | cells[1]
    after, unknown = _image(buffer, form, sent, len(walked), keys_only=False), np.zeros(len(walked), np.bool_)
    lacking, in_parts = _lacking(form, sent), list[int]()
    for place, known in enumerate(form.places):
        partial = None if known is None or known not in cells[1] else cells[1][known].partial
        if known is None or partial is None or not partial.any():
            continue
        if known in cells[0]:
            after[place] = _patched(buffer, after[place], cells[0][known], cells[1][known])
        else:
            unknown |= partial
            in_parts.append(place)
    keys = {known for known, c in zip(form.places, form.schema.columns, strict=True) if c.key is not None}
    by_mariadb = bool(lacking) and form.map.mariadb
    unknown |= by_mariadb
    moved = _moved(form.schema, before, after)
    takes = 1 + moved.astype(np.int64)
    counts = np.bincount(walked, weights=takes, minlength=len(span.event)).astype(np.int64)
    ordinal = _ordinals(walked, counts, takes)
    event = span.event[walked]
    old_places = {c.id: i for i, c in enumerate(form.schema.columns)}
    parts = list[Part]()

    def add(op: str, which: Bits, columns: list[pa.Array], later: int = 0, **more: Any) -> None:
        if which.all():
            parts.append(Part(op, event, ordinal + later, columns, **more))
        elif which.any():
            rows = pa.array(np.flatnonzero(which))
            parts.append(Part(op, event[which], ordinal[which] + later, [a.take(rows) for a in columns], **more))

    unknown_columns = tuple(sorted({*lacking, *in_parts}))
    maybe = by_mariadb and not keys <= cells[1].keys()
    add(UPDATE, ~moved & ~unknown, after, unchanged=lacking)
    add(INSERT, ~moved & unknown, after, unchanged=unknown_columns, may_have_moved=maybe)
    add(DELETE, moved, before)
    add(INSERT, moved & unknown, after, 1, unchanged=unknown_columns)
    went = moved & ~unknown
    gone = pa.array(np.flatnonzero(went))
    old_key = [before[old_places[c.id]].take(gone) for c in form.schema.key_columns]
    add(MOVE, went, after, 1, old_key=old_key, unchanged=lacking)
    parts[0] = replace(parts[0], nulled=_nulled(form, sent, after))
    return parts, counts


def _patched(buffer: Buffer, texts: pa.Array, before: Cells, after: Cells) -> pa.Array:
    """The documents that came in parts, from those before them."""
    assert after.partial is not None
    found = texts.to_pylist()
    whole_ones, parts = buffer.pieces(before), buffer.pieces(replace(after, valid=None))
    for row in np.flatnonzero(after.partial).tolist():
        found[row] = json_differences.text(whole_ones[row].as_py(), parts[row].as_py())
    return pa.array(found, texts.type)


def _lacking(form: RowForm, cells: dict[int, Cells]) -> tuple[int, ...]:
    """The places in the schema of the columns that an image does not have."""
    return tuple(i for i, place in enumerate(form.places) if place is not None and place not in cells)


def _moved(schema: TableSchema, before: list[pa.Array], after: list[pa.Array]) -> Bits:
    moved = np.zeros(len(after[0]), np.bool_)
    for place, known in enumerate(schema.columns):
        if known.key is not None:
            differs = pc.fill_null(pc.not_equal(before[place], after[place]), False)
            moved |= differs.to_numpy(zero_copy_only=False)
    return moved


def _image(buffer: Buffer, form: RowForm, cells: dict[int, Cells], rows: int, keys_only: bool) -> list[pa.Array]:
    """`cells`: by place. Columns without are null. `keys_only`: and the other columns."""
    found = []
    for known, place, schema_column in zip(form.columns, form.places, form.schema.columns, strict=True):
        if place not in cells or (keys_only and schema_column.key is None):
            found.append(pa.nulls(rows, arrow_type(schema_column.type)))
            continue
        with values.fitted(form.schema.name, known.name, known.form, schema_column.key is not None):
            found.append(column(buffer, form.map.columns[place], known, _whole(cells[place])))
    return found


def _whole(cells: Cells) -> Cells:
    """Documents that came in parts count as NULL."""
    if cells.partial is None:
        return cells
    return replace(cells, valid=~cells.partial if cells.valid is None else cells.valid & ~cells.partial)


def _nulled(form: RowForm, cells: dict[int, Cells], typed: list[pa.Array]) -> Nulled:
    """The counts of an image."""
    counts = []
    for known, place, array in zip(form.columns, form.places, typed, strict=True):
        if place not in cells or cells[place].partial is not None:
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
    """The places where the rows begin; and the columns that are present in each event and image. The first image must
    have the key."""
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
    keys = [p for p, c in zip(span.form.places, span.form.schema.columns, strict=True) if c.key is not None]
    lacking = [place for place in keys if not present[:, 0, place].all()]
    if lacking:
        raise _unnamed(span.form, lacking)
    return at + bitmap * images, present


def _unnamed(form: RowForm, places: list[int | None]) -> LogIncomplete:
    names = dict(zip(form.places, form.columns, strict=True))
    columns, table = ", ".join(repr(names[place].name) for place in places), form.schema.name
    what = f"a change of {table} came without the column {columns} of its key: a session has set binlog_row_image"
    return LogIncomplete(table, what, ROW_IMAGE_FIX)
