"""GTID sets: what they contain, as text and on the wire."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sources.mysql.gtid import GtidSet, MariaPosition

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562:", "4e11fa47-71ca-11e1-9e33-c80aa9429562:"
NUMBERS = st.sets(st.integers(1, 60))


def of(prefix: str, numbers: set[int]) -> GtidSet:
    made = GtidSet()
    for number in numbers:
        made.add(prefix, number)
    return made


@given(NUMBERS)
def test_a_set_contains_what_was_added_in_any_order_and_nothing_else(numbers: set[int]) -> None:
    made = GtidSet(str(of(A, numbers)))
    every = np.arange(1, 62)
    assert [n for n in every.tolist() if made.contains(A, n)] == sorted(numbers)
    assert every[made.contain(A, every)].tolist() == sorted(numbers)
    assert not made.contain(B, every).any()


@given(NUMBERS, NUMBERS)
def test_a_set_is_at_least_another_where_it_has_all_of_it(one: set[int], other: set[int]) -> None:
    assert (of(A, one) >= of(A, other)) == (one >= other)


def test_text_is_the_servers_with_holes_tags_and_line_ends() -> None:
    text = f"{A}1-3:5:red:1-2:blue:7,\n{B.upper()}9"
    made = GtidSet(text)
    assert str(made) == f"{A}1-3:5,{A}blue:7,{A}red:1-2,{B}9"
    assert made.contains(f"{A}red:", 2) and not made.contains(A, 4) and not made.contains(f"{A}blue:", 1)


def test_a_set_without_tags_has_the_form_that_older_servers_know() -> None:
    plain, tagged = GtidSet(f"{A}1-3:5").encoded(), GtidSet(f"{A}red:1-3").encoded()
    uuid = bytes.fromhex(A.replace("-", "").rstrip(":"))
    numbers = b"".join(n.to_bytes(8, "little") for n in (2, 1, 4, 5, 6))
    assert plain == (1).to_bytes(8, "little") + uuid + numbers
    assert (tagged[0], tagged[1], tagged[7]) == (1, 1, 1)
    assert tagged[8:] == uuid + b"\x06red" + b"".join(n.to_bytes(8, "little") for n in (1, 1, 4))


@given(NUMBERS, NUMBERS)
def test_sets_are_taken_from_each_other_and_put_together(one: set[int], other: set[int]) -> None:
    left, both = of(A, one) - of(A, other), of(A, one) | of(A, other)
    assert [n for n in range(1, 62) if left.contains(A, n)] == sorted(one - other)
    assert [n for n in range(1, 62) if both.contains(A, n)] == sorted(one | other)
    assert bool(left) == bool(one - other)


def test_a_set_is_told_by_who_wrote_it() -> None:
    found = GtidSet(f"{A}1-3:red:1,{B}9").by_server()
    assert {server: str(gtids) for server, gtids in found.items()} == {A[:-1]: f"{A}1-3,{A}red:1", B[:-1]: f"{B}9"}


def test_a_mariadb_position_holds_the_last_of_each_domain_and_server() -> None:
    position = MariaPosition("1-7-100,0-1-5")
    position.add(0, 2, 6)
    assert (str(position), position.place) == ("0-1-5,0-2-6,1-7-100", "0-2-6,1-7-100")
    position.add(0, 1, 7)
    assert str(MariaPosition(str(position))) == str(position) == "0-2-6,0-1-7,1-7-100"
    assert position.place == "0-1-7,1-7-100"


def test_a_mariadb_log_teaches_which_servers_wrote_before() -> None:
    position = MariaPosition("0-2-6")
    position.learn(MariaPosition("0-2-4,0-1-5,1-1-1"))
    assert (str(position), position.place) == ("0-1-5,0-2-6", "0-2-6")


def test_a_position_of_mariadb_is_in_a_log_that_has_its_last_transaction_of_each_server() -> None:
    ours = MariaPosition("0-1-5,7-2-3")
    assert ours.within("0-1-5,0-3-9,7-2-8")
    assert not ours.within("0-3-9,7-2-8"), "the same number of another server is another transaction"
    assert not ours.within("0-1-4,7-2-8") and not ours.within("0-1-5") and not ours.within("")
    assert MariaPosition("").within("")


def test_a_server_that_wrote_before_the_last_one_may_be_unknown_to_a_log_but_not_less_known() -> None:
    ours = MariaPosition("0-1-5,0-2-6")
    assert ours.within("0-2-6") and ours.within("0-1-5,0-2-6") and not ours.within("0-1-4,0-2-6")
