from dataclasses import replace

from pyroaring import BitMap64

from tailrace.targets.lake.files.compact import CompactionLimits, pick, pick_of_one_day
from tailrace.targets.lake.kept import KeptChunks
from tailrace.targets.lake.model import DataFile

LIMITS = CompactionLimits(small_bytes=100, min_files=3, tiny_bytes=5)


def file(name: str, dead: int = 0, size: int = 10) -> DataFile:
    return DataFile(f"file:///t/data/{name}.parquet", 10, size, BitMap64(range(dead)))


def test_what_a_snapshot_under_way_has_written_is_not_joined_before_it_ends() -> None:
    written = [file(f"chunk-{number}") for number in range(20)]
    assert pick(written, LIMITS, KeptChunks(reading=True)) == []
    assert pick(written, LIMITS, KeptChunks()) == written
    others = [file(f"{number}") for number in range(3)]
    assert pick([*written, *others], LIMITS, KeptChunks(reading=True)) == others


def test_what_it_has_written_is_rewritten_once_most_of_it_is_dead() -> None:
    dead = file("chunk-1", dead=6)
    assert pick([file("chunk-2"), dead], LIMITS, KeptChunks(reading=True)) == [dead]


def test_a_tiny_file_is_not_rewritten_for_its_dead_rows_but_joined_with_the_small_ones() -> None:
    tiny = [file("1", dead=9, size=4), file("2", size=6)]
    assert pick(tiny, LIMITS) == []
    assert pick([*tiny, file("3")], LIMITS) == [*tiny, file("3")]


def test_files_of_different_days_are_not_joined() -> None:
    days = ["2026-11-28", "2026-11-29", None]
    made = [replace(file(f"{number}"), day=days[number % 3]) for number in range(11)]
    assert pick_of_one_day(made, LIMITS) == made[::3]
    assert pick_of_one_day(made[1:], LIMITS) == made[1::3]
    assert pick_of_one_day(made[:8], LIMITS) == made[:8:3]
    assert pick_of_one_day(made[1:6], LIMITS) == pick_of_one_day([], LIMITS) == []


def test_two_small_files_of_a_day_that_is_over_are_joined() -> None:
    """Else each day would keep some for ever."""
    past = [replace(file(f"{number}"), day="2026-11-28") for number in range(2)]
    newest = [replace(file(f"{number}"), day="2026-11-29") for number in range(2, 4)]
    assert pick_of_one_day([*past, *newest], LIMITS) == past
    assert pick_of_one_day([*past[:1], *newest], LIMITS) == pick_of_one_day(newest, LIMITS) == []
