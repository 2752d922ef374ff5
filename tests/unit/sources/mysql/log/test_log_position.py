"""A crash of the server shows as a file of its log without an end; each is met once."""

from tailrace.sources.mysql.log.log_position import LogPosition, StartingPoint
from tailrace.sources.mysql.position import OWN


def crashes(at: int, unended: int | None, *files: tuple[int, bool]) -> list[int]:
    """The files with which a crash showed. `at`: the file in which the recorded position is. `files`: number, and
    whether it has an end."""
    start = StartingPoint(OWN.of(f".{at}", 500), OWN, None if unended is None else OWN.of(f".{unended}", 0))
    reached, found = LogPosition(start), []
    for number, ends in files:
        if reached.open_file(f"binlog.{number:06}", 4):
            found.append(number)
        if ends:
            reached.close_file()
    return found


def test_a_file_without_an_end_before_another_one_is_a_crash() -> None:
    assert crashes(5, 5, (5, False), (6, True), (7, False)) == [6]
    assert crashes(5, 5, (6, False)) == [6]
    assert crashes(5, None, (6, False), (7, False)) == [7]


def test_a_crash_before_what_is_recorded_is_recorded_itself() -> None:
    """An XA transaction that is prepared since makes the server send the log from there on."""
    assert crashes(5, 5, (2, False), (3, True), (4, False), (5, False)) == []
    assert crashes(5, 5, (4, False), (5, False), (6, False)) == [6]
