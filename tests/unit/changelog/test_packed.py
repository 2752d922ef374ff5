"""Packed rows: whatever is appended and dropped, they hold what a plain list would."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.changelog.packed import BLOCK, PackedRows, decode, encode

LOW, HIGH = -(2**63), 2**63 - 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32).map(Random), st.integers(1, 30))
def test_rows_hold_what_a_plain_list_holds(random: Random, steps: int) -> None:
    rows, plain, next_value = PackedRows(3), list[tuple[int, int, int]](), 0
    for _ in range(steps):
        if random.random() < 0.3:
            count = random.randint(0, len(plain))
            rows, plain = rows.drop(count), plain[count:]
        else:
            new = []
            for _ in range(random.choice([1, 3, BLOCK - 1, BLOCK, 3 * BLOCK + 5])):
                next_value += random.choice([0, 1, 1000])
                new.append((next_value, random.randint(LOW, HIGH), random.choice([0, LOW, HIGH])))
            rows, plain = rows.append(np.array(new, np.int64)), plain + new
        if random.random() < 0.2:
            rows = PackedRows.from_document(rows.document())
        assert len(rows) == len(plain)
        assert [tuple(line) for line in rows.lines().tolist()] == plain
        value = random.randint(-1, next_value + 1)
        assert rows.find(0, value) == sum(line[0] < value for line in plain)
        start = random.randint(0, len(plain))
        assert [tuple(line) for line in rows.lines(start, start + 70).tolist()] == plain[start : start + 70]


def test_a_block_gives_back_any_integers() -> None:
    lines = np.random.default_rng(1).integers(LOW, HIGH, (BLOCK, 5), np.int64, endpoint=True)
    assert np.array_equal(decode(encode(lines)), lines)


def test_blocks_that_are_missing_are_noticed() -> None:
    document = PackedRows.of(np.arange(BLOCK + 3, dtype=np.int64).reshape(-1, 1)).document()
    with pytest.raises(ValueError, match="blocks are missing"):
        PackedRows.from_document({**document, "blocks": []})
