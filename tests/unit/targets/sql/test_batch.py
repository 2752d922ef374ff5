"""Staged rows whose values are still to come."""

import numpy as np
import pyarrow as pa

from tailrace.fold.newest import FROM_BASE
from tailrace.targets.sql.batch import _Lacking


def test_a_list_that_is_to_come_stands_as_an_empty_one_and_what_is_null_stays() -> None:
    """A server's arrays may have no NULL; that of a row which has it is another matter."""
    lists = pa.array([[1], None, None], pa.list_(pa.int32()))
    rows = pa.table({"id": [7, 8, 9], "a": lists, "t": ["x", None, None]})
    known, to_come = np.array([0, 0, 0]), np.array([0, FROM_BASE, 0])
    lacking = _Lacking.of([known, to_come, to_come], 3, np.array([0, 1, 2]))
    filled = lacking.filled(rows)
    assert filled.schema == rows.schema
    assert filled["a"].to_pylist() == [[1], [], None]
    assert filled["t"].to_pylist() == ["x", None, None]
