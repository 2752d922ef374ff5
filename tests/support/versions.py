"""Which PostgreSQL a test runs on: the oldest and the newest supported one take turns."""

import zlib

import servers


def major_for(test_id: str) -> int:
    """A major version that stays the same for a test's name, so that a failure repeats."""
    majors = sorted(servers.POSTGRES_VERSIONS)
    return majors[zlib.crc32(test_id.encode()) % len(majors)]
