"""Capture's loop, where its parts meet."""

from types import SimpleNamespace
from typing import cast

from tailrace.capture.loop import LOOKS_SHARE, Capture, Timing


def test_the_catalog_is_not_looked_at_while_a_transaction_is_divided() -> None:
    """A look may add, stop or remove a table in a record before rows of it that are in segments already: the record
    with these rows would then be refused, at each start again."""
    polls: list[bool] = []

    def poll(always_mark: bool) -> int:
        polls.append(always_mark)
        return 4

    assembler = SimpleNamespace(divided=True)
    loop = cast(
        Capture,
        SimpleNamespace(_assembler=assembler, _looks={}, _poll=SimpleNamespace(poll=poll, acted_on=0)),
    )
    assert not Capture.look_at_catalog(loop, 7)
    assert polls == []
    assembler.divided = False
    assert not Capture.look_at_catalog(loop, 7)
    assert polls == [True]
    loop._poll.acted_on = 4
    assert Capture.look_at_catalog(loop, 7)


def test_looks_that_take_long_become_rarer_and_never_stop() -> None:
    timing = Timing()
    assert timing.between_looks(0.01) == 3.0
    assert timing.between_looks(1.0) == LOOKS_SHARE
    assert timing.between_looks(60.0) == 30.0, "the first look reads every partition: it says little of the next one"
    assert Timing(poll=50.0).between_looks(60.0) == 50.0
