"""Of many tables of snapshots, those come to their turn that something has happened to, and those that may begin."""

import pytest

from tailrace.reading import turns
from tailrace.reading.messages import RunKey
from tailrace.reading.turns import Room, TableTurns


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FEW", 2)


def key(number: int) -> RunKey:
    return f"s{number}", number


def a_round(of: TableTurns, now: float, room: int = 99, lacking: dict[int, Room] | None = None) -> list[int]:
    """The tables whose turn it is, as many as there is room for; the more urgent have the larger numbers."""
    of.begin(now)
    of.sort(lambda one: -(one[1] // 10))
    found = list[int]()
    while len(found) < room and (one := of.next()) is not None:
        found.append(one[1])
        if one[1] in (lacking or {}):
            of.lacks(one, (lacking or {})[one[1]])
    of.end()
    return found


def made(*numbers: int) -> TableTurns:
    of = TableTurns()
    for number in numbers:
        of.add(key(number))
    return of


def test_new_tables_are_all_looked_at_in_order_and_then_only_those_that_are_woken() -> None:
    of = made(11, 25, 24, 12)
    assert a_round(of, 100.0) == [25, 24, 11, 12], "by urgency, then as they came"
    assert a_round(of, 100.5) == []
    of.wake(key(12))
    of.wake_table(24)
    assert a_round(of, 100.6) == [24, 12] and a_round(of, 100.7) == []
    of.add(key(13))
    assert a_round(of, 100.8) == [25, 24, 11, 12, 13], "one that comes may be more urgent than others"
    of.remove(key(25))
    of.wake(key(25))
    of.wake_table(25)
    assert a_round(of, 100.9) == [] and a_round(of, 101.8) == [24, 11, 12, 13], "once a second"
    of.wake_all()
    assert a_round(of, 101.9) == [24, 11, 12, 13]
    assert [a_round(made(11, 12), 5.0 + n / 10) for n in range(2)] == [[11, 12]] * 2, "few are always looked at"


def test_those_that_wait_to_begin_do_so_in_their_order_as_soon_as_there_is_room() -> None:
    of = made(11, 12, 13, 14, 15)
    waiting = dict.fromkeys((12, 13, 14, 15), Room.TO_BEGIN)
    assert a_round(of, 100.0, lacking=waiting) == [11, 12, 13, 14, 15]
    assert a_round(of, 100.1, lacking=waiting) == [12], "there is no room for the first of them"
    of.wake(key(11))
    assert a_round(of, 100.2, room=3) == [11, 12, 13]
    assert a_round(of, 100.3, lacking=waiting) == [14]
    of.remove(key(14))
    assert a_round(of, 100.4) == [15] and a_round(of, 100.5) == []


def test_those_that_a_round_does_not_come_to_are_first_in_the_next() -> None:
    of = made(11, 12, 13, 14)
    assert a_round(of, 100.0, room=1) == [11] and a_round(of, 100.1, room=2) == [12, 13]
    of.wake(key(11))
    of.wake(key(12))
    assert a_round(of, 100.2, room=1) == [11] and a_round(of, 100.3) == [12, 14]


def test_those_that_wait_to_be_read_have_a_turn_in_each_round() -> None:
    of = made(11, 12, 13)
    full = {12: Room.TO_READ}
    assert a_round(of, 100.0, lacking=full) == [11, 12, 13]
    assert a_round(of, 100.1, lacking=full) == [12] and a_round(of, 100.2) == [12] and a_round(of, 100.3) == []


def test_those_that_are_counted_are_the_ones_that_were_looked_at() -> None:
    of = made(11, 12, 13)
    a_round(of, 100.0)
    assert of.counted == {key(11), key(12), key(13)}
    of.counted.clear()
    of.wake(key(12))
    of.begin(100.1)
    assert of.counted == {key(12)}
    of.remove(key(12))
    assert of.counted == set()
