"""Sections of an index of keys: everything is found, and whatever is damaged is noticed by whoever reads it."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.targets.lake.files.key_buckets import Damaged, Digests, Section

WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1]))


def digests_of(words: Sequence[int], wide: bool) -> Digests:
    first = np.array(words, np.uint64)
    return Digests.sorted(first, first ^ np.uint64(7) if wide else None, np.arange(len(words)))


def stored(section: Section) -> tuple[bytearray, int]:
    data = bytearray(b"".join(section.parts()))
    return data, len(section.rows)


@given(words=st.lists(WORDS, min_size=1, max_size=60), others=st.lists(WORDS, max_size=10), wide=st.booleans())
def test_a_section_finds_what_a_comparison_finds(words: list[int], others: list[int], wide: bool) -> None:
    data, count = stored(Section.made(5, digests_of(words, wide)))
    section = Section.read(5, memoryview(data), count, wide)
    wanted = list(dict.fromkeys([*words[::2], *others]))
    rows, which = section.find(digests_of(wanted, wide))
    found = sorted(zip(rows.tolist(), which.tolist(), strict=True))
    assert found == [(row, wanted.index(word)) for row, word in enumerate(words) if word in wanted]


@pytest.mark.parametrize("wide", [True, False])
def test_a_match_of_64_bits_is_none_if_the_other_64_differ(wide: bool) -> None:
    word, other = np.array([9], np.uint64), np.array([1], np.uint64)
    section = Section.made(5, Digests(word, word if wide else None, np.array([0])))
    rows, _ = section.find(Digests(word, other if wide else None, np.array([0])))
    assert len(rows) == (0 if wide else 1)


@pytest.mark.parametrize("wide", [True, False])
def test_whichever_byte_is_damaged_nothing_wrong_is_found(wide: bool) -> None:
    words = [2 * int(word) for word in np.random.default_rng(1).integers(0, 2**63, 41)]
    data, count = stored(Section.made(5, digests_of(words, wide)))
    others = [2 * int(word) + 1 for word in np.random.default_rng(2).integers(0, 2**63, 300)]
    wanted = digests_of([*words, *others], wide)
    whole = [part.tolist() for part in Section.read(5, memoryview(data), count, wide).find(wanted)]
    damaged = 0
    for at in range(len(data)):
        for flipped in (1, 0x80, 0xFF):
            data[at] ^= flipped
            try:
                found = Section.read(5, memoryview(data), count, wide).find(wanted)
                assert [part.tolist() for part in found] == whole, f"byte {at} is padding, or read by nobody"
            except Damaged:
                damaged += 1
            data[at] ^= flipped
    assert damaged == 3 * (len(data) - 3 * 4), "two arrays are padded, and the end of the buckets has no check"
    empty = memoryview(bytearray(len(data)))
    with pytest.raises(Damaged):
        Section.read(5, empty, count, wide).find(wanted)


def test_another_sections_bytes_are_refused() -> None:
    data, count = stored(Section.made(5, digests_of([1, 2, 3], True)))
    with pytest.raises(Damaged):
        Section.read(6, memoryview(data), count, True).find(digests_of([1], True))
