"""Row events of one form by column: what is whole is read exactly, what is damaged is refused by name."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.errors import LogIncomplete, TailraceError
from tailrace.sources.mysql.log import rows
from tailrace.sources.mysql.log.columns import Buffer, column
from tailrace.sources.mysql.log.events import Kind, UnknownEvent, gtid, payload, query, rotated, tagged_gtid
from tailrace.sources.mysql.log.rows import RowForm, Span
from tailrace.sources.mysql.log.table_map import LONG, NEWDECIMAL, VARCHAR, MapColumn, TableMap, table_map
from tailrace.sources.mysql.log.walk import Cells
from tailrace.sources.mysql.model import MysqlColumn
from tailrace.sources.mysql.types import ColumnType
from tailrace.sources.mysql.types import Form as ValueForm

ID = Column(name="id", id=1, source_type="int", type="int32", nullable=False, key=0)
V = Column(name="v", id=2, source_type="varchar(9)", type="string")
SCHEMA = TableSchema(table_id=1, schema_name="d", table_name="t", version=1, columns=(ID, V))
Row = tuple[int, str | None]
ROWS = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.none() | st.text("aé€", max_size=3)), min_size=1, max_size=5
)
MAP = b"\x01d\x00\x01t\x00\x02\x03\x0f\x02\x24\x00\x02\x01\x01\x00\x02\x01\x2d\x04\x05\x02id\x01v"


def form(captured: int = 2, mariadb: bool = False) -> RowForm:
    """`captured`: so many of the two columns."""
    text = ColumnType("varchar", "varchar(9)", length=36, charset="utf8mb4")
    known = (
        MysqlColumn("id", ColumnType("int", "int"), ValueForm("int32"), "int32", False, 0, False, True),
        MysqlColumn("v", text, ValueForm("string"), "string", True, None, False, True),
    )
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns[:captured]})
    return RowForm(table_map(MAP, mariadb), schema, known[:captured], (0, 1)[:captured])


def image(row: Row) -> bytes:
    value = b"" if row[1] is None else bytes([len(row[1].encode())]) + row[1].encode()
    return bytes([0 if row[1] is not None else 2]) + row[0].to_bytes(4, "little", signed=True) + value


def event(images: list[bytes], bitmaps: int = 1, present: bytes = b"\x03") -> bytes:
    return bytes(8) + b"\x02\x00" + b"\x02" + present * bitmaps + b"".join(images)


def without_v(row: Row) -> bytes:
    """An image of the first column alone."""
    return b"\x00" + row[0].to_bytes(4, "little", signed=True)


def decoded(bodies: list[bytes], kind: int, captured: int = 2, mariadb: bool = False) -> list[rows.Part]:
    ends = np.cumsum([len(b) for b in bodies])
    starts = ends - np.array([len(b) for b in bodies])
    span = Span(form(captured, mariadb), kind, np.arange(len(bodies)), starts, ends)
    return rows.decode(Buffer.of(bodies), span)[0]


def values(part: rows.Part) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in part.columns), strict=True))


def test_a_table_map_names_types_and_character_sets() -> None:
    columns = (MapColumn(LONG, 0), MapColumn(VARCHAR, 36))
    assert table_map(MAP) == TableMap("d", "t", columns, ((False, False),), ("id", "v"), (None, 45), ((), ()))


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_rows_come_out_in_order_whatever_number_an_event_has(events: list[list[Row]]) -> None:
    (part,) = decoded([event([image(row) for row in found]) for found in events], Kind.WRITE_ROWS)
    assert values(part) == [row for found in events for row in found]
    assert part.event.tolist() == [i for i, found in enumerate(events) for _ in found]
    assert part.ordinal.tolist() == [i for found in events for i in range(len(found))]


@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=3))
def test_an_update_of_the_key_is_two_rows_that_follow_each_other(pairs: list[tuple[list[Row], list[Row]]]) -> None:
    cut = [list(zip(before, after, strict=False)) for before, after in pairs]
    bodies = [event([image(b) + image(a) for b, a in found], bitmaps=2) for found in cut]
    parts = decoded(bodies, Kind.UPDATE_ROWS)
    taken = sorted(
        (int(e), int(o), part.op, row)
        for part in parts
        for e, o, row in zip(part.event, part.ordinal, [r[0] for r in values(part)], strict=True)
    )
    expected = []
    for number, found in enumerate(cut):
        ordinal = 0
        for before, after in found:
            steps = [("U", after[0])] if before[0] == after[0] else [("D", before[0]), ("M", after[0])]
            expected += [(number, ordinal + i, op, key) for i, (op, key) in enumerate(steps)]
            ordinal += len(steps)
    assert taken == sorted(expected)


@given(st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=6))
def test_a_column_that_is_not_captured_may_be_missing_in_some_events(events: list[tuple[list[Row], bool]]) -> None:
    """MariaDB from 11.8.9 on: generated columns are in the images of inserts and in no others."""
    bodies = [
        event([image(row) if whole else without_v(row) for row in found], present=b"\x03" if whole else b"\x01")
        for found, whole in events
    ]
    parts = decoded(bodies, Kind.WRITE_ROWS, captured=1)
    taken = sorted(
        (int(e), int(o), value)
        for part in parts
        for e, o, value in zip(part.event, part.ordinal, part.columns[0].to_pylist(), strict=True)
    )
    assert taken == [(i, j, row[0]) for i, (found, _) in enumerate(events) for j, row in enumerate(found)]


def test_an_update_may_lack_what_is_not_captured_in_either_image() -> None:
    both = bytes(8) + b"\x02\x00" + b"\x02" + b"\x03\x01" + image((1, "a")) + without_v((2, None))
    whole = event([image((3, "b")), image((3, "c"))], bitmaps=2)
    parts = decoded([both, whole], Kind.UPDATE_ROWS, captured=1)
    found = {part.op: list(zip(part.event.tolist(), part.columns[0].to_pylist(), strict=True)) for part in parts}
    assert found == {"D": [(0, 1)], "M": [(0, 2)], "U": [(1, 3)]}


@pytest.mark.parametrize(
    ("kind", "mariadb", "op"),
    [
        (Kind.WRITE_ROWS, False, "I"),
        (Kind.UPDATE_ROWS, False, "U"),
        (Kind.UPDATE_ROWS_V1, False, "U"),
        (Kind.UPDATE_ROWS_V1, True, "I"),
    ],
)
def test_a_captured_column_that_is_missing_after_a_change_is_listed(kind: Kind, mariadb: bool, op: str) -> None:
    images = 1 + (kind in rows.UPDATES)
    body = event([without_v((1, None))] * images, images, present=b"\x01")
    body = body[:8] + body[10:] if kind is Kind.UPDATE_ROWS_V1 else body
    (part,) = decoded([body], kind, mariadb=mariadb)
    assert (part.op, part.unchanged, values(part)) == (op, (1,), [(1, None)])


def test_a_deleted_row_needs_its_key_alone() -> None:
    (part,) = decoded([event([without_v((1, None))], present=b"\x01")], Kind.DELETE_ROWS)
    assert values(part) == [(1, None)]
    with pytest.raises(LogIncomplete, match="'id'"):
        decoded([event([b"\x00\x01a"], present=b"\x02")], Kind.DELETE_ROWS)


@given(ROWS, st.data())
def test_a_truncated_event_is_refused_or_ends_with_a_whole_row(found: list[Row], data: st.DataObject) -> None:
    images = [image(row) for row in found]
    whole, rows_size = event(images), len(b"".join(images))
    length = data.draw(st.integers(0, len(whole) - 1))
    ends = [len(whole) - rows_size + len(b"".join(images[:i])) for i in range(len(images))]
    if length not in ends:
        with pytest.raises(UnknownEvent):
            decoded([whole[:length]], Kind.WRITE_ROWS)
        return
    left = [row for part in decoded([whole[:length]], Kind.WRITE_ROWS) for row in values(part)]
    assert left == found[: ends.index(length)]


@given(ROWS, st.data())
def test_a_damaged_event_is_refused_by_name_or_gives_rows_of_the_form(found: list[Row], data: st.DataObject) -> None:
    """What a checksum would have shown; without one, nothing is read beyond the event."""
    whole = bytearray(event([image(row) for row in found]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        parts = decoded([bytes(whole)], Kind.WRITE_ROWS)
    except TailraceError:
        return
    assert all([c.type for c in part.columns] == [pa.int32(), pa.string()] for part in parts)


@pytest.mark.parametrize(
    ("precision", "damaged"), [(9, b"\x80\0\0\1\xc8"), (30, b"\x80\xff" + bytes(12)), (30, bytes(14))]
)
def test_a_damaged_decimal_is_refused_by_name_unless_it_is_null(precision: int, damaged: bytes) -> None:
    """`decimal(9,2)` and `decimal(30,10)`: each group of bytes has room for more digits than it stands for."""
    scale = 2 if precision == 9 else 10
    kind, logical = f"decimal({precision},{scale})", f"decimal({precision},{scale})"
    known = MysqlColumn("d", ColumnType("decimal", kind), ValueForm(logical), logical, True, None, False, True)
    zero = b"\x80" + bytes(len(damaged) - 1)
    at, length = np.array([0, len(zero)]), np.full(2, len(zero))
    buffer, sent = Buffer.of([zero, damaged]), MapColumn(NEWDECIMAL, precision * 256 + scale)
    null = column(buffer, sent, known, Cells(at, length, np.array([True, False])))
    assert [None if value is None else int(value) for value in null.to_pylist()] == [0, None]
    with pytest.raises(UnknownEvent, match="more digits"):
        column(buffer, sent, known, Cells(at, length, None))


@given(st.binary(max_size=80))
def test_bytes_that_are_no_event_are_refused_by_name(raw: bytes) -> None:
    for read in (table_map, gtid, tagged_gtid, query, lambda body: list(payload(body))):
        try:
            read(raw)
        except UnknownEvent as error:
            assert error.fix


@pytest.mark.parametrize("name", [b"binlog.0000x1", b"binlog", b"", b"binlog.\xff", b"binlog.000002"])
def test_a_rotation_to_no_place_is_refused_by_name(name: bytes) -> None:
    offset = 1 << 40 if name.endswith(b"2") else 4
    with pytest.raises(UnknownEvent, match="ROTATE"):
        rotated(offset.to_bytes(8, "little") + name)


def test_mariadb_counts_geometry_among_the_columns_with_a_collation() -> None:
    """latin1 varchar, point, utf8mb4 text, as MariaDB 10.11 and MySQL 9.7 write them."""
    head, kinds = b"\x01d\0\x01t\0\x03", bytes([15, 255, 252])
    form = head + kinds + b"\x04\x28\x00\x04\x02" + b"\x07"
    assert table_map(form + b"\x03\x03\x08\x3f\x2d", mariadb=True).collations == (8, 63, 45)
    assert table_map(form + b"\x03\x02\x08\x2d").collations == (8, None, 45)


def test_a_year_has_no_sign_in_early_versions_of_mysql() -> None:
    kinds = bytes([13, 3, 3])  # a year, int unsigned, int
    form = b"\x02\x01d\x00\x01t\x00\x03" + kinds + b"\x00\x00" + b"\x01\x01"
    assert table_map(form + b"\x80", early=True).signs == ((True, False, False), (False, True, False))
    assert table_map(form + b"\x80").signs == ((True, False, False),)
    assert table_map(form[:-2], early=True).signs == (None,)
