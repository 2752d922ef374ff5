"""The log's rows as arrays."""

import pyarrow as pa
import pytest

from tailrace.fold.log_rows import _codes


@pytest.mark.parametrize("column", [["U", "I", "D", "M", "T"], pa.array(["X", "U", "I", "D", "M", "T", "X"])[1:6]])
def test_operations_are_their_letters_also_in_a_part_of_a_column(column: object) -> None:
    assert _codes(pa.chunked_array([column], pa.string())).tolist() == [85, 73, 68, 77, 84]
    assert _codes(pa.chunked_array([[], column], pa.string())).tolist() == [85, 73, 68, 77, 84]


def test_no_operation_is_no_letter() -> None:
    assert _codes(pa.chunked_array([], pa.string())).tolist() == []
    assert _codes(pa.chunked_array([[]], pa.string())).tolist() == []
