"""A unit of copies whose batches are divided: what its errors say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import Fenced, Retry, TailraceError
from tailrace.targets.api import TableFailed, UnitBatch
from tailrace.targets.sql.unit import SqlUnit

UNKNOWN = 99


LOCKED = Retry("locked")
LOCKED.locked = True


class Session:
    """The target says that the group has four members, of which this process has not opened one."""

    asked: set[tuple[str, str]]

    def rows(self, statement: str, *values: object) -> list[tuple[int]]:
        return [(1,), (2,), (3,), (UNKNOWN,)] if "member" in statement else [(5,)]

    def end_left_open(self, copies: Sequence[tuple[str, str]]) -> list[str]:
        self.asked = set(copies)
        return []

    @contextmanager
    def session(self) -> Iterator["Session"]:
        yield self


@pytest.mark.parametrize("error", [Fenced("overtaken", ""), Retry.of_place("away"), LOCKED, TableFailed(1, Retry("1"))])
def test_a_failed_part_tells_its_error_whatever_else_is_in_the_group(error: TailraceError) -> None:
    session = Session()
    tables = {
        i: SimpleNamespace(
            copy=SimpleNamespace(applied=SimpleNamespace(log_id="l")), place=("s", str(i)), shape=0, key=0
        )
        for i in (1, 2, 3)
    }
    run = SimpleNamespace(admit=lambda: None)
    units: Any = SimpleNamespace(sessions=session, tables=tables, most_tables=2, run=run)
    unit: Any = SqlUnit(units, together=True)

    def failing(*_: object) -> NoReturn:
        raise error

    unit._withdraw_loads = failing
    parts: Any = dict.fromkeys((1, 2, 3))
    batch = UnitBatch(RecordNumber(6), frozenset({1, 2, 3}), parts)
    with pytest.raises(type(error)) as raised:
        unit.apply(batch)
    assert raised.value is error
    if error is LOCKED:
        assert session.asked == {("s", "1"), ("s", "2"), ("s", "3")}
