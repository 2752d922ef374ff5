"""The checksums of many events at once.

Called by `framing`. An event of the log ends with its CRC32, and calling zlib for each takes ten times as long as the
sum. A CRC without its initial value is linear: that of a stretch is the XOR of those of its events, each moved on by
the bytes that follow it; and that of an event that ends with its own CRC32 depends on its length only. So the sum of a
stretch whose events are all intact is known beforehand. One that is not intact changes it, whatever stands around it.
Several could cancel each other out, once in 2**32 times: as often as one that is damaged has its checksum by chance.

Source: R. N. Williams, "A painless guide to CRC error detection algorithms" (1993), on initial values and residues.
"""

import zlib
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tailrace.sources.mysql.log.walk import Places

Sums = NDArray[np.uint32]
RESIDUE = 0x2144DF1C
"""The CRC32 of whatever is followed by its own CRC32."""
STRETCH = 1 << 15
"""Bytes at most that are summed at once: all places in them have known sums."""
_ALL_ONES = 0xFFFFFFFF


def intact(data: bytes, start: Places, behind: Places, between: int) -> bool:
    """True if each event ends with the CRC32 of what is before it. `start`, `behind`: where the events begin and end in
    the data, in order. `between`: bytes from one to the next, which no checksum covers."""
    cell = behind // (STRETCH // 2)
    first = [0, *(np.flatnonzero(np.diff(cell)) + 1).tolist(), len(start)]
    return all(_stretch(data, start[a:b], behind[a:b], between) for a, b in pairwise(first) if a < b)


def _stretch(data: bytes, start: Places, behind: Places, between: int) -> bool:
    begin, end = int(start[0]), int(behind[-1])
    if end - begin > STRETCH:
        view, bounds = memoryview(data), zip(start.tolist(), behind.tolist(), strict=True)
        return all(zlib.crc32(view[a:b]) == RESIDUE for a, b in bounds)
    copy = np.frombuffer(data, np.uint8, end - begin, begin).copy()
    copy[(behind[:-1, None] - begin + np.arange(between)).ravel()] = 0  # adds nothing
    fresh, ended = _moved_on(0), _moved_on(RESIDUE)
    expected = int(np.bitwise_xor.reduce(fresh[end - start] ^ ended[end - behind]))
    return zlib.crc32(copy.tobytes(), _ALL_ONES) ^ _ALL_ONES == expected


@cache
def _moved_on(crc: int) -> Sums:
    """A CRC32 as it is after 0, 1, 2 and more zero bytes."""
    sums = [crc]
    for _ in range(STRETCH):
        sums.append(zlib.crc32(b"\0", sums[-1]))
    return np.array(sums, np.uint32)
