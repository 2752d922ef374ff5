"""Composite values as structs: the form that PostgreSQL writes comes back field by field."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.changelog.types import arrow_type, fields_of, struct_of
from tailrace.errors import SchemaChangeUnsupported, ValueUnsupported
from tailrace.sources.postgresql.codec import decode
from tailrace.sources.postgresql.composites import NoStruct, split

FIELD = st.none() | st.text(st.sampled_from('(),"\\\\ a\n\u00fc\U0001f600') | st.characters(codec="utf-8"), max_size=9)
NAMES = ("a", "b")


def written(fields: tuple[str | None, ...]) -> str:
    """As `record_out` writes it, with more quotes than it needs in places."""
    return "(" + ",".join(map(_field, fields)) + ")"


def _field(text: str | None) -> str:
    if text is None:
        return ""
    plain = text.isalnum() and text.isascii()
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def values(texts: Sequence[str | None]) -> pa.LargeBinaryArray:
    return pa.array([None if text is None else text.encode() for text in texts], pa.large_binary())


@given(st.lists(st.none() | st.tuples(FIELD, FIELD), max_size=6), st.integers(0, 2))
@example([("", None), None, ('"', "\\"), ("(,)", '"",""'), (None, None)], 1)
def test_every_field_comes_back(rows: list[tuple[str | None, str | None] | None], before: int) -> None:
    texts = values([*["(x,y)"] * before, *(None if row is None else written(row) for row in rows)]).slice(before)
    found = decode(texts, struct_of((name, "string") for name in NAMES), "public.t", "c")
    found.validate(full=True)
    assert found.to_pylist() == [None if row is None else dict(zip(NAMES, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    "text", ["(1)", "(1,2,3)", "()", "", "1,2", "(1,2", "1,2)", '("1,2)', "(1,2)(3,4)", '(1,"2)', '(1,"2"x)']
)
def test_a_value_with_other_fields_is_refused(text: str) -> None:
    for some in ([text], ["(1,2)", text], [text, "(1,2)"]):
        with pytest.raises(NoStruct):
            split(values(list(some)), 2)
        with pytest.raises(SchemaChangeUnsupported, match="was altered"):
            decode(values(list(some)), struct_of((name, "string") for name in NAMES), "public.t", "c")


@given(st.lists(st.binary(max_size=12) | st.tuples(FIELD, FIELD).map(written).map(str.encode), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(texts: list[bytes]) -> None:
    try:
        found = split(pa.array(texts, pa.large_binary()), 2)
    except NoStruct:
        return
    for field in found:
        assert len(field) == len(texts)
        field.validate(full=True)


def test_fields_have_the_types_of_columns() -> None:
    kind = struct_of([("n", "decimal(5,1)"), ("at", "timestamp"), ("raw", "binary"), ("list", "string")])
    texts = [r'(1.5,"2024-02-29 12:00:00","\\x00ff","{1,2}")', None, "(,,,)"]
    found = decode(values(list(texts)), kind, "public.t", "c")
    assert found.type == arrow_type(kind)
    first, *rest = found.to_pylist()
    assert [str(value) for value in first.values()] == ["1.5", "2024-02-29 12:00:00", repr(b"\0\xff"), "{1,2}"]
    assert rest == [None, dict.fromkeys(first)]


def test_a_value_with_one_field_that_does_not_fit_becomes_null_and_no_other_does() -> None:
    kind = struct_of([("n", "decimal(4,1)"), ("at", "date")])
    texts = values(["(1.5,2024-01-01)", "(NaN,2024-01-01)", "(1.5,infinity)", "(1.5)", "(,)", None])
    found = decode(texts, kind, "public.t", "c", sets_null=True).to_pylist()
    assert [row is not None for row in found] == [True, False, False, False, True, False]
    with pytest.raises(ValueUnsupported, match=r"which struct<.* replaced by another since, it is enough to resync"):
        decode(texts, kind, "public.t", "c")


@given(st.lists(st.tuples(st.text(max_size=5), st.sampled_from(["int32", "decimal(9,2)", "string"])), min_size=1))
def test_the_text_of_a_struct_has_all_its_names(fields: list[tuple[str, str]]) -> None:
    assert fields_of(struct_of(fields)) == tuple(fields)


@pytest.mark.parametrize("text", ["struct<>", 'struct<"a":>', "struct<a:int32>", 'struct<"a":list<int32>>'])
def test_what_is_no_struct_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown logical type"):
        fields_of(text)
