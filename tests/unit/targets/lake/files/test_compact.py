from dataclasses import replace

from pyroaring import BitMap64

from tailrace.targets.lake.files.compact import CompactionLimits, pick, picks_of_days
from tailrace.targets.lake.files.vector_costs import VectorCosts
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


def test_a_file_is_rewritten_once_its_vectors_have_cost_more_than_the_file_is_worth() -> None:
    """Few of its rows are dead; but each batch that marks one writes all of them again."""
    limits, costs = replace(LIMITS, vector_share=2), VectorCosts()
    marked, other = replace(file("1", dead=1), vector_bytes=5), file("2")
    for _ in range(4):
        costs.wrote([marked, other], [marked.path])
        assert pick([marked, other], limits, costs=costs) == []
    costs.wrote([marked, other], [marked.path])
    assert pick([marked, other], limits, costs=costs) == [marked]
    assert pick([replace(marked, size=4)], limits, costs=costs) == [], "it is tiny"


def test_of_many_files_whose_vectors_cost_too_much_the_dearest_go_first() -> None:
    """Changes wait while they are rewritten."""
    dear = [replace(file(f"{number}", dead=1, size=200), vector_bytes=400 + number) for number in range(20)]
    assert pick(dear, LIMITS) == dear[:16:-1]
    assert pick(dear, replace(LIMITS, dear_part=1)) == dear[:0:-1]


def test_the_vectors_that_a_process_finds_count_as_they_are() -> None:
    found = replace(file("1", dead=1, size=10), vector_bytes=21)
    assert pick([found], LIMITS) == [found]
    assert pick([replace(found, vector_bytes=20)], LIMITS) == []


def test_a_file_is_joined_only_with_as_much_again() -> None:
    sizes = [file("1", size=10), file("2", size=11), file("3", size=22), file("4", size=43)]
    assert pick(sizes, LIMITS) == sizes
    assert pick([*sizes[:3], file("4", size=44)], LIMITS) == []
    assert pick([*sizes[:2], file("3", size=21), file("4", size=43)], LIMITS) == [*sizes[:2], file("3", size=21)]
    marked = file("5", dead=6, size=30)
    assert pick([marked, *sizes[:2]], LIMITS) == [*sizes[:2], marked], "with what is rewritten anyhow"


def test_files_of_different_days_are_not_joined() -> None:
    days = ["2026-11-28", "2026-11-29", None]
    made = [replace(file(f"{number}"), day=days[number % 3]) for number in range(11)]
    assert picks_of_days(made, LIMITS) == [made[::3], made[1::3]]
    assert picks_of_days(made[3:], LIMITS) == [made[3::3], made[4::3]]
    assert picks_of_days(made[2::3], LIMITS) == [made[2::3]]
    assert picks_of_days(made[1:6], LIMITS) == picks_of_days([], LIMITS) == []


def test_two_small_files_of_a_day_that_is_over_are_joined() -> None:
    """Else each day would keep some for ever."""
    past = [replace(file(f"{number}"), day="2026-11-28") for number in range(2)]
    newest = [replace(file(f"{number}"), day="2026-11-29") for number in range(2, 4)]
    assert picks_of_days([*past, *newest], LIMITS) == [past]
    assert picks_of_days([*past[:1], *newest], LIMITS) == picks_of_days(newest, LIMITS) == []
    assert picks_of_days([past[0], replace(past[1], size=41), *newest], LIMITS) == [], "late ones are few"


def test_a_day_that_is_over_does_not_wait_until_the_newest_one_rests_nor_that_one_for_it() -> None:
    past = [replace(file(f"past-{number}"), day="2026-11-28") for number in range(2)]
    older = [replace(file(f"older-{number}"), day="2026-11-27") for number in range(3)]
    newest = [replace(file(f"new-{number}"), day="2026-11-29") for number in range(50)]
    assert picks_of_days([*newest, *past], LIMITS) == [past, newest]
    assert picks_of_days([*past, *older, *newest], LIMITS) == [older, newest]
