"""Hashes of keys: equal ones for equal keys, whatever array they are in and whatever else is in it."""

from datetime import date
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tailrace.fold import key_hashes
from tailrace.fold.key_hashes import LONGEST
from tailrace.fold.key_words import key_words

RANDOM = Random(29)
TEXTS = sorted({
    *("".join(RANDOM.choices("ab\0é", k=size)) for size in range(40) for _ in range(20)),
    *("x" * size + end for size in (LONGEST - 1, LONGEST, LONGEST + 1, 5000) for end in ("", "1", "2", "\0")),
})  # fmt: skip
VALUES: dict[pa.DataType, list[object]] = {
    pa.string(): list(TEXTS),
    pa.large_string(): list(TEXTS),
    pa.binary(): [text.encode() for text in TEXTS],
    pa.large_binary(): [text.encode() for text in TEXTS],
    pa.decimal128(38, 2): [Decimal(number).scaleb(-2) for number in (-(10**36), -(2**64), -1, 0, 1, 2**64, 10**36)],
    pa.list_(pa.int64()): [[], [1], [1, 2], [2, 1]],
}
NUMBERS, DAYS = [-1, 0, 1, 2**62], [date(1970, 1, 1), date(2026, 11, 29)]


def words(*columns: pa.Array) -> list[int]:
    found = key_words(columns)
    assert not found.exact
    return [int(word) for word in found.words]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_value_has_one_hash_in_whatever_array_it_is_and_no_other_value_has_it(kind: pa.DataType) -> None:
    values = VALUES[kind]
    alone = [words(pa.array([value], kind))[0] for value in values]
    assert len(set(alone)) == len(values)
    assert words(pa.array(values, kind)) == alone
    shuffled = RANDOM.sample(range(len(values)), len(values))
    sliced = pa.array([values[0], None, *(values[number] for number in shuffled)], kind).slice(2)
    assert words(sliced) == [alone[number] for number in shuffled]


def test_large_offsets_and_steps_change_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = words(pa.array(TEXTS))
    assert words(pa.array(TEXTS, pa.large_string())) == whole
    monkeypatch.setattr(key_hashes, "AT_ONCE", 7)
    assert words(pa.array(TEXTS)) == whole


def test_a_null_has_one_hash_whatever_bytes_are_under_it() -> None:
    parts = pa.py_buffer(np.array([0, 2, 4, 6], np.int32)), pa.py_buffer(b"aabbaa")
    hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x04"), *parts])
    assert hidden.to_pylist() == [None, None, "aa"]
    null, other, text = words(hidden)
    assert null == other == words(pa.array([None], pa.string()))[0] and text == words(pa.array(["aa"]))[0] != null


def test_keys_of_several_columns_differ_by_value_and_by_column() -> None:
    rows = [(text, number, day) for text in TEXTS[:50] for number in NUMBERS for day in DAYS]
    texts, numbers, days = zip(*rows, strict=True)
    columns = [pa.array(texts), pa.array(numbers, pa.int64()), pa.array(days, pa.date32())]
    found = words(*columns)
    assert len(set(found)) == len(rows)
    assert [words(*(column.slice(at, 1) for column in columns))[0] for at in range(len(rows))] == found
    same = pa.array(["a", "b"]), pa.array(["b", "a"])
    assert len({*words(*same), *words(*reversed(same))}) == 2, "the same two keys, in another order"
    assert words(*same) != words(*reversed(same))
    assert words(pa.array(["a"]), pa.array([1], pa.int32())) == words(pa.array(["a"]), pa.array([1], pa.int64()))


def test_a_key_with_a_column_that_only_duckdb_hashes_has_its_hash_as_a_whole() -> None:
    lists = pa.array([[1], [2], [1]], pa.list_(pa.int64()))
    one, other, again = words(pa.array(["a", "a", "a"]), lists)
    assert one == again != other and one == words(pa.array(["a"]), lists.slice(0, 1))[0]


def test_counted_texts_share_no_hash() -> None:
    """Whose differences are few bits, at the ends of words."""
    for text in ("{:08d}{:08d}", "{:04x}-x-{:04x}"):
        keys = pa.array([text.format(one, other) for one in range(0, 10_000, 50) for other in range(0, 10_000, 50)])
        assert len(np.unique(key_words([keys]).words)) == len(keys)
