"""What is told of a table that is dated ahead of the clock."""

from tailrace.targets.lake.iceberg.clock import behind


def test_a_date_that_no_calendar_has_is_told_as_a_number() -> None:
    """A writer that took microseconds for milliseconds."""
    assert "1763900000000000000 ms after 1970" in behind("s.t", 1_763_900_000_000_000_000, 0).message
    assert "1970-01-02 00:00:00 UTC, 86400 s ahead" in behind("s.t", 86_400_000, 0).message
