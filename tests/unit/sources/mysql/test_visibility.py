"""What a chunk of MySQL or MariaDB contains."""

import numpy as np
import pytest

from tailrace.changelog.transactions import TransactionIds
from tailrace.errors import CorruptLog
from tailrace.sources.mysql.visibility import visibility

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562:"


def test_a_chunk_sees_the_executed_set_hole_by_hole() -> None:
    seen = visibility(f"gtid:{A}1-3:5,{A}red:9")
    ids = TransactionIds((A, f"{A}red:", "x:"), np.array([0, 0, 0, 1, 1, 2]), np.array([3, 4, 5, 9, 1, 3]))
    assert seen.sees(ids).tolist() == [True, False, True, True, False, False]
    assert (seen.past(f"{A}1-2"), seen.past(f"{A}1-4"), seen.past("")) == (True, False, True)


def test_a_mariadb_chunk_sees_what_began_before_its_position() -> None:
    seen = visibility("maria:100")
    assert seen.sees(TransactionIds(("",), np.zeros(3, np.int64), np.array([99, 100, 101]))).tolist() == [
        True,
        False,
        False,
    ]
    assert (seen.past("100"), seen.past("101"), seen.past("")) == (True, False, True)


@pytest.mark.parametrize("text", ["", "5", "maria:x", "gtid:a:1-c"])
def test_another_text_is_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLog):
        visibility(text).past("")
