"""The signal table in the server's catalog: a name that the log will not have is refused, with the one to write."""

from typing import cast

import pytest

from tailrace.databases.mysql.connect import Connection
from tailrace.sources.mysql import signal_table
from tailrace.sources.signals import SignalTable

COLUMNS = (("id", "varchar"), ("type", "varchar"), ("data", "varchar"))


def obstacle(monkeypatch: pytest.MonkeyPatch, named: str, *found: str) -> str | None:
    """`found`: schema and table, as the server calls them."""
    rows = [(*column, *found) for column in COLUMNS]
    monkeypatch.setattr(signal_table, "execute", lambda connection, statement: rows)
    schema, table = named.split(".")
    fault = signal_table.obstacle(cast(Connection, None), SignalTable(schema, table))
    return None if fault is None else f"{fault.message}. Fix: {fault.fix}"


def test_a_server_that_keeps_names_in_lower_case_has_another_name_in_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `lower_case_table_names = 1` the catalog finds the table under both names."""
    assert obstacle(monkeypatch, "shop.signals", "shop", "signals") is None
    said = obstacle(monkeypatch, "Shop.Signals", "shop", "signals")
    assert said is not None and "is called shop.signals" in said and "Write source.signalTable: shop.signals." in said
