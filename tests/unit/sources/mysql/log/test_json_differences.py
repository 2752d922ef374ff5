"""Differences of a document: applied as the server does, and whatever is damaged is refused by name."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sources.mysql.log.events import UnknownEvent
from tailrace.sources.mysql.log.json_differences import text

DOCUMENT = bytes.fromhex("00 0100 1800 0b00 0100 02 0c00 61 0200 0c00 05 0100 0c 0a00 01 78")
"""{"a": [1, "x"]}"""
SEVEN, EMPTY = b"\x05\x07\x00", b"\x00\x00\x00\x04\x00"


def difference(kind: int, path: str, value: bytes = b"") -> bytes:
    sized = bytes([len(value)]) + value if value else b""
    return bytes([kind, len(path)]) + path.encode() + sized


@pytest.mark.parametrize(
    ("differences", "result"),
    [
        ([], '{"a": [1, "x"]}'),
        ([difference(0, "$.a[1]", SEVEN)], '{"a": [1, 7]}'),
        ([difference(1, "$.a[2]", EMPTY), difference(1, "$.a[2].bb", SEVEN)], '{"a": [1, "x", {"bb": 7}]}'),
        ([difference(1, '$." "', SEVEN), difference(2, "$.a[0]")], '{" ": 7, "a": ["x"]}'),
        ([difference(1, "$.bb", SEVEN), difference(1, "$.c", EMPTY)], '{"a": [1, "x"], "c": {}, "bb": 7}'),
        ([difference(2, "$.a")], "{}"),
        ([difference(0, "$.a[last]", SEVEN), difference(2, "$.a[last-1]")], '{"a": [7]}'),
        ([difference(1, "$.a[last-7]", SEVEN)], '{"a": [7, 1, "x"]}'),
    ],
)
def test_differences_are_applied_in_order(differences: list[bytes], result: str) -> None:
    assert text(DOCUMENT, b"".join(differences)) == result


@pytest.mark.parametrize(
    "damaged",
    [
        difference(3, "$.a"),
        difference(0, "$.b", SEVEN),
        difference(1, "$.a", SEVEN),
        difference(2, "$.b[0]"),
        difference(0, "$.a[7]", SEVEN),
        difference(0, "$.a.x", SEVEN),
        difference(2, "$"),
        difference(2, "$.a[x]"),
        difference(0, "$.a", SEVEN)[:-1],
    ],
)
def test_differences_to_another_document_are_refused(damaged: bytes) -> None:
    with pytest.raises(UnknownEvent):
        text(DOCUMENT, damaged)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused_by_name(before: bytes, differences: bytes) -> None:
    with suppress(UnknownEvent):
        text(before, differences)
