"""Which of several chunks decides a key, with arrays."""

from types import SimpleNamespace
from typing import cast

import numpy as np

from tailrace.fold.chunk_keys import KEY_ONLY, ChunkKeys, choose
from tailrace.fold.fold_input import FoldInput


def part(*points: int) -> FoldInput:
    """With a chunk for each of these replay points."""
    chunks = [SimpleNamespace(replay_point=point) for point in points]
    whole = SimpleNamespace(
        chunks=chunks, replayed_from=lambda c: c.replay_point, emptied_at=lambda _: None, start_seq=0
    )
    return cast(FoldInput, SimpleNamespace(slice=whole))


def keys(chunk: list[int], position: list[int]) -> ChunkKeys:
    return ChunkKeys(np.array(chunk, np.int64), np.array(position, np.int64), [])


def test_the_greatest_replay_point_decides_and_of_equal_ones_the_later_chunk() -> None:
    found = choose(part(5, 9, 9, 3), keys([0, 1, 2, 3], [0, 0, 0, 0]), np.zeros(4, np.int64), 1)
    assert (found.row.tolist(), found.low.tolist()) == ([2], [9])


def test_in_a_chunk_a_row_decides_and_not_the_question_for_it() -> None:
    found = choose(part(5), keys([0, 0], [7, KEY_ONLY]), np.zeros(2, np.int64), 1)
    assert found.row.tolist() == [0]
