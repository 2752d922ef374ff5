"""MySQL's binary JSON: doubles as the server spells them (test_mysql_values.py compares all of it with a server)."""

import pytest

from tailrace.sources.mysql.log.json_binary import double


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e-15, "0.000000000000001"),
        (1.5e-16, "1.5e-16"),
        (123456789012345.0, "123456789012345.0"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1234567890123456.8, "1234567890123456.8"),
        (-4503599627370495.5, "-4503599627370495.5"),
        (12345678901234568.0, "1.2345678901234568e16"),
        (1.5e300, "1.5e300"),
        (5e-324, "5e-324"),
    ],
)
def test_a_double_is_spelled_as_the_server_spells_it(value: float, expected: str) -> None:
    assert double(value) == expected
