"""States after other rows than the last, against the rule."""

import random

import numpy as np
import pytest

from tailrace.batch.rule import UNCHANGED, ApplyRule, Change, Op, Row
from tailrace.fold.newest import FROM_BASE, KeyedRows, newest

COLUMNS = 3


@pytest.mark.parametrize("seed", range(20))
def test_the_state_after_any_row_is_what_the_rule_has_by_then(seed: int) -> None:
    rnd = random.Random(seed)
    count = rnd.randint(1, 40)
    key = np.array([rnd.randrange(5) for _ in range(count)], np.int64)
    ops: list[Op] = [rnd.choice(["I", "U", "U", "U", "D", "M"]) for _ in range(count)]
    unchanged = {at: np.array([op != "D" and rnd.random() < 0.4 for op in ops]) for at in range(COLUMNS)}
    stops = np.array([rnd.random() < 0.5 for _ in range(count)])
    counts = np.array([rnd.random() < 0.9 for _ in range(count)])
    changes = KeyedRows(key, np.array([ord(op) for op in ops], np.int64), unchanged, COLUMNS)
    found = newest(changes, counts, stops & counts)
    assert sorted(found.rows.tolist()) == np.flatnonzero(stops & counts).tolist()
    rule = ApplyRule[int](COLUMNS)
    for at, row in enumerate(found.rows.tolist()):
        history = [
            Change(
                n + 1, ops[n], int(key[n]),
                () if ops[n] == "D" else tuple(UNCHANGED if unchanged[c][n] else n for c in range(COLUMNS)),
            )
            for n in range(row + 1) if key[n] == key[row] and counts[n]
        ]  # fmt: skip
        rows: dict[int, Row] = {int(key[row]): Row((FROM_BASE,) * COLUMNS)}
        rule.fold(rows, history, moves=False)
        state = rows.get(int(key[row]))
        assert found.keys[at] == key[row] and found.deleted[at] == (state is None)
        if state is not None:
            known = [value if isinstance(value, int) else FROM_BASE for value in state.values]
            assert [int(column[at]) for column in found.values] == known
            assert found.reset[at] == any(change.op in "DIM" for change in history)


def test_without_stops_there_is_one_state_for_each_key() -> None:
    key = np.array([2, 1, 2], np.int64)
    changes = KeyedRows(key, np.array([ord(op) for op in "IIU"], np.int64), {}, 1)
    found = newest(changes, np.ones(3, np.bool_))
    assert (found.keys.tolist(), found.rows.tolist()) == ([1, 2], [1, 2])
