"""The checksums of many events at once say what zlib says of each."""

import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sources.mysql.log import checksums
from tailrace.sources.mysql.log.checksums import RESIDUE, STRETCH, intact

BETWEEN = 5


class Stretch:
    """Events of these sizes in a packet each, whose heads hold whatever they hold."""

    def __init__(self, sizes: list[int], seed: int = 0) -> None:
        rand = random.Random(seed)
        self.data = bytearray()
        self.start, self.behind = [], []
        for size in sizes:
            self.data += rand.randbytes(BETWEEN)
            self.start.append(len(self.data))
            event = rand.randbytes(size)
            self.data += event + zlib.crc32(event).to_bytes(4, "little")
            self.behind.append(len(self.data))
        self.data += rand.randbytes(3)  # of the next packet

    def intact(self) -> bool:
        return intact(bytes(self.data), np.array(self.start), np.array(self.behind), BETWEEN)

    def one_by_one(self) -> bool:
        return all(zlib.crc32(self.data[a:b]) == RESIDUE for a, b in zip(self.start, self.behind, strict=True))


LARGE = [STRETCH // 2 - 4, STRETCH // 2, STRETCH - 5, STRETCH - 4, STRETCH, 70_000]
SIZES = st.lists(st.one_of(st.integers(1, 120), st.sampled_from(LARGE)), min_size=1, max_size=60)


@given(SIZES, st.integers(0, 2**32))
def test_events_that_are_intact_are_taken(sizes: list[int], seed: int) -> None:
    made = Stretch(sizes, seed)
    assert made.one_by_one()
    assert made.intact()


@given(SIZES, st.integers(0, 2**32), st.data())
def test_an_event_that_is_damaged_is_found(sizes: list[int], seed: int, data: st.DataObject) -> None:
    made = Stretch(sizes, seed)
    which = data.draw(st.integers(0, len(sizes) - 1))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(made.start[which], made.behind[which] - 1))
        made.data[place] ^= data.draw(st.integers(1, 255))
    assert made.intact() == made.one_by_one()


@given(SIZES, st.integers(0, 2**32), st.data())
def test_many_that_are_damaged_are_found(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """Also the same damage twice, which a sum without regard to places would not see."""
    made = Stretch(sizes, seed)
    change = data.draw(st.integers(1, 255))
    for which in data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)):
        made.data[made.behind[which] - 5] ^= change
    assert not made.one_by_one()
    assert not made.intact()


@pytest.mark.parametrize("move", [-1, 1])
def test_bounds_that_are_not_the_events_are_found(move: int) -> None:
    made = Stretch([50] * 100)
    made.behind[70] += move
    assert not made.intact()


def test_events_that_change_places_are_still_intact_and_halves_of_two_are_not() -> None:
    made = Stretch([60, 60, 60])
    (a, b), (c, d) = (made.start[0], made.behind[0]), (made.start[2], made.behind[2])
    first, last = bytes(made.data[a:b]), bytes(made.data[c:d])
    made.data[a:b], made.data[c:d] = last, first
    assert made.intact()
    made.data[a : a + 30] = first[:30]
    assert not made.intact()


def test_a_stretch_is_summed_at_once() -> None:
    """One call for about sixteen kilobytes: that is what all of this is for."""
    calls = 0

    class Counted:
        @staticmethod
        def crc32(data: bytes, before: int) -> int:
            nonlocal calls
            calls += 1
            return zlib.crc32(data, before)

    made = Stretch([60] * 2_000)
    with pytest.MonkeyPatch.context() as patched:
        made.intact()  # the tables are there
        patched.setattr(checksums, "zlib", Counted)
        assert made.intact()
    assert calls < 12
