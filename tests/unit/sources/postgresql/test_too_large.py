import pytest

from tailrace.errors import PositionLost, Retry
from tailrace.sources.postgresql.log.connection import unsendable
from tailrace.sources.postgresql.too_large import too_large


@pytest.mark.parametrize(
    ("sqlstate", "message", "found"),
    [
        ("54000", "memoria esaurita", True),
        ("XX000", "invalid memory alloc request size 1200000003", True),
        ("XX000", "ERREUR:  invalid memory alloc request size 4294967299", True),
        ("XX000", "invalid memory alloc request size 18446744073709551613", False),  # damaged data, not a long value
        ("53200", "out of memory", False),  # of the machine
        ("XX000", "could not open relation with OID 16384", False),
        ("", "", False),
    ],
)
def test_only_a_value_that_is_too_long_is_told_as_one(sqlstate: str, message: str, found: bool) -> None:
    assert too_large(sqlstate, message) is found


@pytest.mark.parametrize("where", ["in the begin callback", "in the commit callback", ""])
def test_what_is_not_about_a_row_does_not_lose_the_position(where: str) -> None:
    """Versions before 2025-08 ask for so much after much DDL."""
    error = unsendable("XX000", f"invalid memory alloc request size 1196493216 {where}", "shop")
    assert type(error) is Retry
    assert isinstance(unsendable("54000", "memoria esaurita", "shop"), PositionLost)


def test_a_transaction_that_may_still_be_rolled_back_does_not_lose_the_position() -> None:
    """The server sends a large one before it has ended."""
    lasting = unsendable("XX000", "invalid memory alloc request size 1200000003, in the change callback", "shop")
    passing = unsendable("XX000", "invalid memory alloc request size 1200000003, in the stream_change callback", "shop")
    assert isinstance(lasting, PositionLost) and type(passing) is Retry
    assert passing.fix == f"Capture continues by itself if the transaction is rolled back. Else: {lasting.fix}"
