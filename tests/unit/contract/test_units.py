"""Sizes as people read them."""

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.contract.units import size_text

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def test_sizes_are_told_in_units_from_bytes_to_tebibytes() -> None:
    known = {
        0: "0 bytes",
        1023: "1023 bytes",
        1 << 10: "1 KiB",
        160 << 10: "160 KiB",
        (1 << 20) - 1: "1 MiB",
        5 << 20: "5 MiB",
        5 << 30: "5.0 GiB",
        3 << 39: "1.5 TiB",
        5000 << 40: "5,000.0 TiB",
    }
    assert {n: size_text(n) for n in known} == known


@given(st.integers(1, 1 << 52))
@example(1_099_457_940_685)  # just below 1 TiB
def test_what_is_more_than_nothing_is_never_told_as_nothing(count: int) -> None:
    number, unit = size_text(count).replace(",", "").split()
    assert float(number) > 0
    assert abs(float(number) * UNITS[unit] - count) <= UNITS[unit] * 0.51
    assert float(number) < 1024 or unit == "TiB"
