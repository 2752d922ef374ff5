"""Rows that should be there against those that are."""

import numpy as np
import pyarrow as pa
import pytest

from tailrace.changelog.records.snapshots import MOST_EXAMPLES, ComparisonResult, RowDifference
from tailrace.fold.comparison import Compared, compared, counted, superfluous, withheld
from tailrace.fold.replayed import KeyStates

KINDS = {"id": pa.int64(), "t": pa.string(), "f": pa.float64()}


def rows(*listed: tuple[int, str | None, float | None]) -> pa.Table:
    columns = zip(*listed, strict=True) if listed else ((), (), ())
    return pa.table([pa.array(c, k) for c, k in zip(columns, KINDS.values(), strict=True)], names=list(KINDS))


def states(*keys: tuple[int, bool, bool], expected: pa.Table) -> KeyStates:
    """`keys`: each with whether it is present, and known."""
    ids, present, known = zip(*keys, strict=True)
    return KeyStates([pa.array(ids, pa.int64())], np.array(present), np.array(known), expected)


def found(expected: KeyStates, *there: tuple[int, str | None, float | None], held: tuple[int, ...] = ()) -> Compared:
    at = [expected.keys[0].to_pylist().index(row[0]) for row in there]
    mask = np.isin(np.asarray(expected.keys[0]), held)
    return compared(expected, mask, np.array(at, np.int64), rows(*there), KINDS)


def test_each_difference_has_its_kind_and_its_columns() -> None:
    expected = states(
        (1, True, True), (2, True, True), (3, True, True), (4, False, True), (5, True, True), (6, False, True),
        expected=rows((1, "a", 1.0), (2, "b", 2.0), (3, None, 3.0), (5, "e", 0.0)),
    )  # fmt: skip
    result = found(expected, (5, "e", -0.0), (1, "a", 1.0), (3, "", 3.5), (4, "d", 4.0))
    assert set(result.found.examples) == {
        RowDifference(kind="missing", key=("2",)),
        RowDifference(kind="different", key=("3",), columns=("t", "f")),
        RowDifference(kind="extra", key=("4",)),
        RowDifference(kind="different", key=("5",), columns=("f",)),
    }
    assert set(result.keys) == {("2",), ("3",), ("4",), ("5",)}
    assert result.found.columns == (("f", 2), ("t", 1))
    assert (result.found.rows, result.found.differences, result.found.undecided) == (4, 4, 0)


def test_a_row_that_the_target_has_twice_is_extra_once() -> None:
    result = found(states((1, True, True), expected=rows((1, "a", 1.0))), (1, "a", 1.0), (1, "a", 1.0))
    assert (result.found.extra, result.found.different, result.keys) == (1, 0, (("1",),))


def test_nothing_is_said_of_a_row_that_is_not_known_or_withheld() -> None:
    expected = states((1, True, False), (2, True, True), (3, False, False), expected=rows((2, "b", 2.0)))
    result = found(expected, (1, "x", 9.0), (3, "y", 9.0), held=(2,))
    assert result == Compared(ComparisonResult(rows=0, undecided=3))


def test_nan_is_equal_to_nan_and_null_to_null_only() -> None:
    expected = states((1, True, True), (2, True, True), expected=rows((1, None, float("nan")), (2, None, None)))
    assert not found(expected, (1, None, float("nan")), (2, None, None)).found.differences
    assert found(expected, (1, None, None), (2, None, None)).found.columns == (("f", 1),)


def test_the_keys_that_a_target_withholds_are_found_among_others() -> None:
    keys = [pa.array([3, 1, 7], pa.int64()), pa.array(["a", "b", "a"])]
    holes = frozenset({("7", "a"), ("3", "b"), ("9", "a")})
    assert withheld(keys, holes, [pa.int64(), pa.string()]).tolist() == [False, False, True]
    assert withheld(keys, frozenset(), [pa.int64(), pa.string()]).tolist() == [False] * 3


def test_rows_without_a_key_are_counted() -> None:
    def digests(*numbers: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array(numbers, np.int64), np.array(numbers, np.int64) * 3

    result = counted([digests(1, 1, 2), digests(3)], [digests(1, 2, 2), digests(4)])
    assert (result.rows, result.missing, result.extra) == (4, 2, 2)
    assert sorted(each.kind for each in result.examples) == ["extra", "extra", "missing", "missing"]
    assert not counted([digests(1, 2), digests(1)], [digests(2, 1, 1)]).differences


def test_all_differences_are_counted_and_a_thousand_named() -> None:
    result = superfluous([pa.array(range(2 * MOST_EXAMPLES), pa.int64())])
    assert result.found.extra == len(result.keys) == 2 * MOST_EXAMPLES
    twice = result + result
    assert (twice.found.extra, len(twice.found.examples)) == (4 * MOST_EXAMPLES, MOST_EXAMPLES)


@pytest.mark.parametrize("count", [0, 3])
def test_what_is_beyond_the_chunks_counts_no_row_twice(count: int) -> None:
    whole = Compared(ComparisonResult(rows=count, missing=count, undecided=count), (("1",),) * count)
    assert whole.beyond_chunks() == Compared(ComparisonResult(missing=count), (("1",),) * count)
