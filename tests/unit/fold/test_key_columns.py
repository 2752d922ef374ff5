"""Keys as text, as numbers and among parts."""

import numpy as np
import pyarrow as pa

from tailrace.fold.key_columns import group
from tailrace.fold.moved_keys import _components


def test_equal_keys_get_equal_numbers() -> None:
    numbers, count = group([pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])])
    assert count == 3
    assert numbers[0] == numbers[3] and len(set(numbers.tolist())) == 3


def test_chains_and_swaps_of_moved_keys_are_one_tangle() -> None:
    olds, news = np.array([1, 2, 9, 8, 30, 4, 5]), np.array([2, 3, 8, 9, 31, 5, 6])
    tangle = _components(olds, news)
    rows, labels = tangle.place(np.array([1, 3, 7, 9, 8, 31, 4, 6]))
    assert rows.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert labels[0] == labels[1] and labels[2] == labels[3] and labels[5] == labels[6]
    assert len(set(labels.tolist())) == 4
