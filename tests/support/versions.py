"""Which PostgreSQL, MySQL or MariaDB a test runs on: the oldest and the newest supported one take turns. And with which
format a proof is made whose path is the same for all of them.
"""

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

import mysql_packages
import servers

Version = TypeVar("Version")


def major_for(test_id: str) -> int:
    """A major version that stays the same for a test's name, so that a failure repeats."""
    return _turn([min(servers.POSTGRES_VERSIONS), max(servers.POSTGRES_VERSIONS)], test_id)


def release_for(product: str, test_id: str) -> str:
    """The same of `mysql_packages.RELEASES`; `product`: mysql or mariadb."""
    return _turn([name for name in mysql_packages.RELEASES if name.startswith(product)], test_id)


def one_of(*cases: Version, of: str) -> list[Version]:
    """For `parametrize`: one of the cases, always the same for a name; `make soak` runs all (`TAILRACE_SOAK_CASES`)."""
    return list(cases) if os.environ.get("TAILRACE_SOAK_CASES") == "all" else [_turn(cases, of)]


def _turn(choices: Sequence[Version], test_id: str) -> Version:
    return choices[zlib.crc32(test_id.encode()) % len(choices)]
