"""Arrays as lists: the form that PostgreSQL writes, against a reader that goes through it character by character."""

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.changelog.types import arrow_type
from tailrace.errors import ValueUnsupported
from tailrace.sources.postgresql.arrays import NoList, lists, split
from tailrace.sources.postgresql.codec import decode

ELEMENT = st.none() | st.text(
    st.sampled_from('{},"\\ aNUL\n\u00fc\U0001f600') | st.characters(codec="utf-8"), max_size=9
)
ARRAY = st.lists(ELEMENT, max_size=5)


def written(elements: Iterable[str | None]) -> str:
    """As `array_out` writes it, with more quotes than it needs in places."""
    return "{" + ",".join(map(_element, elements)) + "}"


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    plain = text.isalnum() and text.isascii() and text.upper() != "NULL"
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read(texts: Iterable[str | bytes | None]) -> list[list[str | None] | None]:
    values = pa.array([t.encode() if isinstance(t, str) else t for t in texts], pa.large_binary())
    parts = split(values)
    found: list[list[str | None] | None] = lists(parts, parts.elements.cast(pa.string()), values).to_pylist()
    return found


@given(st.lists(st.none() | ARRAY, max_size=6), st.integers(0, 2))
@example([["a\\", None, "NULL", "", "null"], [], None, ["\\", '"', "{}", "a,b"]], 0)
def test_every_element_comes_back(arrays: list[list[str | None] | None], before: int) -> None:
    texts = [None if a is None else written(a) for a in arrays]
    assert read(texts) == arrays
    values = pa.array([b"{x,y}"] * before + [None if t is None else t.encode() for t in texts], pa.large_binary())
    sliced = split(values.slice(before))
    assert (
        sliced.elements.to_pylist()
        == split(pa.array(values.slice(before).to_pylist(), pa.large_binary())).elements.to_pylist()
    )


@pytest.mark.parametrize(
    "text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "{{}}", "", "1", "{1", "1}", '{"1}', "{1}{2}", "{1},{2}"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    for some in ([text], ["{1}", text], [text, "{1}"]):
        with pytest.raises(NoList):
            read(some)


@given(st.lists(st.binary(max_size=12) | ARRAY.map(written).map(str.encode), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(texts: list[bytes]) -> None:
    values = pa.array(texts, pa.large_binary())
    try:
        parts = split(values)
    except NoList:
        return
    assert parts.counts.sum() == len(parts.elements) and len(parts.counts) == len(texts)
    parts.elements.validate(full=True)


def test_elements_have_the_type_of_a_column() -> None:
    texts = ['{"2024-02-29 12:00:00",NULL}', None, "{}"]
    values = pa.array([t and t.encode() for t in texts], pa.large_binary())
    found = decode(values, "list<timestamp>", "public.t", "c")
    assert found.type == arrow_type("list<timestamp>")
    assert [v and [e and e.isoformat() for e in v] for v in found.to_pylist()] == [
        ["2024-02-29T12:00:00", None],
        None,
        [],
    ]
    raw = decode(pa.array([b'{"\\\\x00ff","\\\\x"}'], pa.large_binary()), "list<binary>", "public.t", "c")
    assert raw.to_pylist() == [[b"\0\xff", b""]]


def test_a_value_with_one_element_that_does_not_fit_becomes_null_and_no_other_does() -> None:
    values = pa.array([b"{1.5,NaN}", b"{2.5}", b"{{1,2}}", None], pa.large_binary())
    found = decode(values, "list<decimal(4,1)>", "public.t", "c", sets_null=True)
    assert [v and [str(e) for e in v] for v in found.to_pylist()] == [None, ["2.5"], None, None]
    with pytest.raises(ValueUnsupported, match="which list<decimal"):
        decode(values, "list<decimal(4,1)>", "public.t", "c")
