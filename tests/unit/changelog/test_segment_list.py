"""The packed list of a table's segments: equal to a plain list, and small."""

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from tailrace.changelog.paths import is_bundle
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.segment_list import LoggedSegment, SegmentList

BYTES = 200
"""Of a kept segment, at most (docs/performance.md)."""


def logged(number: int, random: Random, path: str | None = None) -> LoggedSegment:
    first = 1 + number * 40
    last = first + random.randint(0, 30)
    made = Segment(
        table_id=16_400,
        schema_version=1,
        path=path or f"segments/public.t-16400/{first}-{last}-{random.getrandbits(64):016x}.parquet",
        rows=last - first + 1,
        size=random.randint(2_000, 40_000),
        first_seq=Seq(first),
        last_seq=Seq(last),
        unchanged=random.random() < 0.5,
        moves=random.random() < 0.5,
        inserts=random.randint(0, 9),
        updates=random.randint(0, 9),
    )
    return LoggedSegment(
        record=RecordNumber(3 + number), segment=made, written_at=1_700_000_000_000_000 + number * 200_000
    )


def test_a_segment_comes_back_as_it_was() -> None:
    random = Random(1)
    paths = (None, "s1", "segments/a.b-16400/1-2-xyz.parquet", "segments/other-16400/5-9-0a.parquet", None)
    plain = [logged(n, random, path) for n, path in enumerate(paths * 60)]
    packed = SegmentList.of(plain)
    assert list(packed) == plain
    assert [packed[0], packed[-1], *packed[5:9]] == [plain[0], plain[-1], *plain[5:9]]
    assert list(packed.drop(70)) == plain[70:]
    with pytest.raises(IndexError):
        packed[len(plain)]


def bundle(number: int, random: Random) -> LoggedSegment:
    token = f"{random.getrandbits(64):016x}"
    return logged(number, random, f"segments/bundles/{1 + number * 40 - number}-{40 + number * 40}-{token}.arrow")


def test_bundles_and_files_take_turns_and_come_back_as_they_were() -> None:
    random = Random(4)
    plain = [bundle(n, random) if random.random() < 0.7 else logged(n, random) for n in range(400)]
    packed = SegmentList.of(plain)
    assert list(packed) == plain
    assert len(packed.document(blocks=False)["names"]) == 1
    for start, stop in ((0, 400), (3, 170), (390, 400), (5, 5)):
        of_bundles = [(s.segment.path, s.record) for s in plain[start:stop] if is_bundle(s.segment.path)]
        assert list(packed.bundles(start, stop)) == of_bundles
    assert packed.through_record(RecordNumber(10)) == 8


def test_ranges_are_those_of_a_plain_list() -> None:
    random = Random(2)
    plain = [logged(n, random) for n in range(400)]
    packed = SegmentList.of(plain).drop(13)
    kept = plain[13:]
    assert (list(map(packed.__getitem__, range(len(kept)))), packed.last_seq) == (kept, kept[-1].segment.last_seq)
    with pytest.raises(IndexError):
        packed[len(kept)]
    for _ in range(200):
        record, seq = random.randint(-1, 420), random.randint(-1, 16_500)
        sizes = [(s.record, s.segment.rows, s.segment.size) for s in kept if s.record > record]
        assert list(packed.sizes_after(RecordNumber(record))) == sizes
        assert list(packed.ending_from(Seq(seq))) == [s for s in kept if s.segment.last_seq >= seq]
        assert packed.ended_through(Seq(seq)) == sum(s.segment.last_seq <= seq for s in kept)
        assert packed.record_after(RecordNumber(record)) == min(
            (s.record for s in kept if s.record > record), default=None
        )
        through = [s.segment.last_seq for s in kept if s.record <= record]
        assert packed.last_seq_through(RecordNumber(record)) == max(through, default=None)


@pytest.mark.parametrize("made", [logged, bundle])
def test_a_kept_segment_takes_less_than_200_bytes(made: Callable[[int, Random], LoggedSegment]) -> None:
    random, count = Random(3), 5_000
    tracemalloc.start()
    packed = SegmentList()
    for number in range(count):
        packed = packed.append(made(number, random))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(packed) == count
    assert size / count < BYTES, f"{size / count:.0f} bytes a segment"
