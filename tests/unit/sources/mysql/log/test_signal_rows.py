"""Rows of the signal table as MySQL's log has them: by position, in their character sets, or refused by name."""

import pytest

from tailrace.errors import TailraceError
from tailrace.sources.mysql.log.columns import Buffer
from tailrace.sources.mysql.log.events import Kind
from tailrace.sources.mysql.log.signal_rows import SignalRows
from tailrace.sources.mysql.log.table_map import BLOB, LONG, VARCHAR, MapColumn, TableMap
from tailrace.sources.signals import SignalRow

UTF8, LATIN = 45, 8
NAMES = {UTF8: "utf8mb4", LATIN: "latin1"}
SIGNALS = SignalRows(NAMES)


def table(*kinds: int, collation: int = UTF8) -> TableMap:
    columns = tuple(MapColumn(kind, 2 if kind == BLOB else 168) for kind in kinds)
    count = len(kinds)
    return TableMap("d", "signals", columns, (), None, (UTF8, UTF8, collation)[:count], ((),) * count)


def event(*rows: tuple[bytes | None, ...]) -> bytes:
    """`WRITE_ROWS` of three columns, the third with lengths of two bytes."""
    body = bytes(8) + b"\x02\x00" + b"\x03\x07"
    for row in rows:
        body += bytes([sum(1 << place for place, value in enumerate(row) if value is None)])
        body += b"".join(
            len(value).to_bytes(2 if place == 2 else 1, "little") + value
            for place, value in enumerate(row)
            if value is not None
        )
    return body


def read(form: TableMap, body: bytes) -> list[tuple[int, SignalRow]]:
    other = b"another event"
    return SIGNALS.of(Buffer.of([other, body]), form, Kind.WRITE_ROWS, len(other), len(other) + len(body))


def test_each_row_of_an_event_has_its_place_and_watermarks_have_none() -> None:
    rows = ((b"a", b"log", "ü".encode()), (b"b-open", b"snapshot-window-open", None), (b"c", b"pause-snapshot", None))
    assert read(table(VARCHAR, VARCHAR, BLOB), event(*rows)) == [
        (0, SignalRow("a", "log", "ü")),
        (2, SignalRow("c", "pause-snapshot", None)),
    ]


def test_texts_are_in_the_character_set_of_their_column() -> None:
    (found,) = read(table(VARCHAR, VARCHAR, BLOB, collation=LATIN), event((b"a", b"log", "ü".encode("latin1"))))
    assert found[1].data == "ü"
    ((_, row),) = read(table(VARCHAR, VARCHAR, BLOB), event((b"a", b"log", "ü".encode("latin1"))))
    assert row.fault is not None and "character set" in row.fault


@pytest.mark.parametrize(
    ("kinds", "why"), [((VARCHAR, VARCHAR), "has 2 columns"), ((LONG, VARCHAR, VARCHAR), "column 1 ")]
)
def test_a_table_of_another_form_is_named(kinds: tuple[int, ...], why: str) -> None:
    ((_, row),) = read(table(*kinds), event((b"a", b"log", None)))
    assert row.fault is not None and why in row.fault and "Fix: " in row.fault


@pytest.mark.parametrize("cut", [9, 10, 11, *range(13, 20)])
def test_an_event_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(TailraceError):
        read(table(VARCHAR, VARCHAR, BLOB), event((b"a", b"log", b"some text"))[:cut])
