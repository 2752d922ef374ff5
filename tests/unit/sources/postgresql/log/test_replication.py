"""What a server's refusal of START_REPLICATION comes to."""

import pytest

from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.postgresql.log.replication import start_error


@pytest.mark.parametrize(
    ("state", "kind"),
    [("42704", PositionLost), ("42501", SourceRefused), ("55006", Retry), ("55000", Retry), ("", Retry)],
)
def test_a_refused_start_is_told_by_its_sqlstate_in_any_language(state: str, kind: type[Exception]) -> None:
    error = start_error("shop", state, "FEHLER: Replikations-Slot »shop« existiert nicht")
    assert type(error) is kind
    assert "»shop« existiert nicht" in str(error)
