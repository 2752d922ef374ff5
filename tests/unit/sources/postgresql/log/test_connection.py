"""What a server's refusal of START_REPLICATION comes to, and whose slot is taken over."""

from typing import cast

import pytest

from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.postgresql.log.connection import release_slot, start_error


@pytest.mark.parametrize(
    ("state", "kind"),
    [("42704", PositionLost), ("42501", SourceRefused), ("55006", Retry), ("55000", Retry), ("", Retry)],
)
def test_a_refused_start_is_told_by_its_sqlstate_in_any_language(state: str, kind: type[Exception]) -> None:
    error = start_error("shop", state, "FEHLER: Replikations-Slot »shop« existiert nicht")
    assert type(error) is kind
    assert "»shop« existiert nicht" in str(error)


class Holders:
    """Who holds the slot, at one look after the other."""

    def __init__(self, *rows: tuple[object, ...] | None) -> None:
        self._rows = list(rows)
        self.asked: list[str] = []

    def execute(self, statement: str, _: object) -> "Holders":
        self.asked.append(statement)
        return self

    def fetchone(self) -> tuple[object, ...] | None:
        return self._rows.pop(0)


def test_a_backend_that_is_just_ending_is_waited_for_and_taken_for_nobody_elses() -> None:
    """The slot still names it, the list of sessions does not."""
    holders, slept = Holders((11, None, None, None), (11, None, None, None), None), list[float]()
    release_slot(cast(Connection, holders), "slot", ["ours"], slept.append)
    assert len(slept) == 2
    assert all("pg_terminate_backend" not in statement for statement in holders.asked)


def test_a_holder_with_another_name_or_user_is_refused() -> None:
    for row in ((11, "theirs", True, "10.0.0.1"), (11, "ours", False, None)):
        with pytest.raises(SourceRefused, match="in use by backend 11"):
            release_slot(cast(Connection, Holders(row)), "slot", ["ours"], lambda _: None)
