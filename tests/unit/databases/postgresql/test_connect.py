"""What a failed connection says."""

import psycopg
import pytest

from tailrace.databases.postgresql.connect import PgConfig, _connect_error, database_errors
from tailrace.errors import Retry, StorageFull, TailraceError, TargetRefused

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


@pytest.mark.parametrize(
    ("found", "kind", "away"),
    [
        (psycopg.errors.DiskFull, StorageFull, True),
        (psycopg.errors.OutOfMemory, Retry, True),
        (psycopg.errors.ReadOnlySqlTransaction, Retry, True),  # another server has been promoted
        (psycopg.errors.LockNotAvailable, Retry, False),
        (psycopg.errors.ProgramLimitExceeded, TargetRefused, False),
        (psycopg.errors.UniqueViolation, TargetRefused, False),
        (psycopg.errors.FeatureNotSupported, TargetRefused, False),  # a view uses a column whose type changes
    ],
)
def test_errors_of_a_target_are_the_servers_or_a_tables(
    found: type[psycopg.Error], kind: type[TailraceError], away: bool
) -> None:
    with pytest.raises(kind) as raised, database_errors("db", "target"):
        raise found("out of shared memory")
    assert type(raised.value) is kind and getattr(raised.value, "away", False) is away
    assert "rights" not in raised.value.fix
    assert ("max_locks_per_transaction" in raised.value.fix) == (found is psycopg.errors.OutOfMemory)
