import os
import resource
from collections.abc import Iterator

import pytest

from tailrace.databases.readable import readable


@pytest.fixture
def high() -> Iterator[tuple[int, int]]:
    """The ends of a pipe, both above what `select.select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    read, write = os.pipe()
    found = 1500, 1501
    for low, number in zip((read, write), found, strict=True):
        os.dup2(low, number)
        os.close(low)
    yield found
    for number in found:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_above_1023_is_waited_for(high: tuple[int, int]) -> None:
    read, write = high
    other, end = os.pipe()
    assert not readable(read, other, seconds=0.01)
    os.write(write, b".")
    assert readable(other, read, seconds=10)
    os.read(read, 1)
    os.close(end)
    assert readable(other, seconds=10), "an end can be read, too"
    os.close(other)
