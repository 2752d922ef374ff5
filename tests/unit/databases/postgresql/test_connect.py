"""What a failed connection says."""

import psycopg
import pytest

from tailrace.databases.postgresql.connect import PgConfig, _connect_error
from tailrace.errors import Retry

CONFIG = PgConfig(host="db", port=5432, database="shop", username="tailrace")


@pytest.mark.parametrize(
    ("said", "away"),
    [
        ("connection refused", True),
        ("FATAL:  sorry, too many clients already", False),
        ('FATAL:  too many connections for role "tailrace"', False),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", False),
    ],
)
def test_a_server_without_a_free_connection_is_not_away(said: str, away: bool) -> None:
    """Others of ours go on, and nobody waits for them."""
    error = _connect_error(CONFIG, psycopg.OperationalError(f'connection to server at "db", port 5432 failed: {said}'))
    assert isinstance(error, Retry) and error.away is away
