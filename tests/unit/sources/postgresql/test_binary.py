"""Values in binary form that no server of the tests makes quickly."""

import struct

import pyarrow as pa
import pytest

from tailrace.sources.numerals import NoSuchNumber
from tailrace.sources.postgresql.binary import _decimal


@pytest.mark.parametrize("groups", [32_767, 32_768, 36_864])
def test_a_number_of_very_many_digits_does_not_fit(groups: int) -> None:
    """The number of groups has no sign."""
    number = struct.pack(">HhHH", groups, 32_767, 0, 0) + b"\x00\x01" + bytes(2 * groups - 4) + b"\x00\x01"
    with pytest.raises(NoSuchNumber):
        _decimal(pa.array([number], pa.large_binary()), "decimal(18,2)")
