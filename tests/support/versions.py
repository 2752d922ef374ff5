"""Cases of a test (versions of a server, formats, products) that take turns from commit to commit.

A test whose path is the same for all its cases runs one of them at a time; the number of the commit decides which, so
that all come up within a few commits. The run prints its turn; `TAILRACE_TURN=<number>` repeats it, `TAILRACE_TURN=all`
(as `make soak` sets) runs every case.
"""

import os
import random
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

import mysql_packages
import servers

Version = TypeVar("Version")
DEAR = frozenset(
    f"tests/{name}.py"
    for name in (
        "integration/capture/test_log", "integration/capture/test_start", "integration/cli/test_command_line",
        "integration/cli/test_console_page", "integration/driver/test_faults", "integration/driver/test_once_delta",
        "integration/driver/test_once_s3", "integration/operator/test_chart",
        "integration/operator/test_chart_cluster", "integration/operator/test_cluster_console",
        "integration/operator/test_faults", "integration/operator/test_plugin", "integration/operator/test_requests",
        "integration/sources/test_keyless", "integration/sources/test_mysql_chunks",
        "integration/sources/test_mysql_continued", "integration/sources/test_mysql_crash",
        "integration/sources/test_mysql_failover", "integration/sources/test_mysql_in_place",
        "integration/sources/test_mysql_log", "integration/sources/test_mysql_pipeline",
        "integration/sources/test_mysql_replica", "integration/sources/test_mysql_statements",
        "integration/sources/test_mysql_statements_read", "integration/sources/test_mysql_values",
        "integration/sources/test_postgresql_chunks", "integration/sources/test_postgresql_values",
        "integration/sources/test_row_filters", "integration/sources/test_unusual_settings",
        "integration/spark/test_rpc", "integration/spark/test_session", "integration/storage/test_full",
        "integration/targets/test_bigquery_lists", "integration/targets/test_column_names",
        "integration/targets/test_columns_by_metadata", "integration/targets/test_delta_checkpoint",
        "integration/targets/test_engine_spread", "integration/targets/test_generations",
        "integration/targets/test_histories", "integration/targets/test_iceberg_catalogs",
        "integration/targets/test_iceberg_cleanup", "integration/targets/test_iceberg_kept_metadata",
        "integration/targets/test_iceberg_rows", "integration/targets/test_iceberg_small_commits",
        "integration/targets/test_iceberg_state", "integration/targets/test_interrupted_first_copy",
        "integration/targets/test_loaded_chunks", "integration/targets/test_maintenance",
        "integration/targets/test_marked_keys", "integration/targets/test_mysql_copies",
        "integration/targets/test_obstacles", "integration/targets/test_postgresql_copies",
        "integration/targets/test_readers", "integration/targets/test_soft_deletes",
        "integration/targets/test_two_drivers", "proof/test_database_target", "proof/test_ddl_fuzz",
        "proof/test_ddl_scenarios", "proof/test_evolve", "proof/test_foreign", "proof/test_keys_of_copies",
        "proof/test_lost", "proof/test_repairs_stream", "proof/test_seams",
    )
)  # fmt: skip
"""Files of ten CPU seconds and more in which one half of the cases runs at a time, every second one of them."""
DEAREST = frozenset(
    f"tests/integration/{name}.py"
    for name in (
        "operator/test_replicators", "targets/test_bigquery_copies", "targets/test_comparison",
        "targets/test_conformance", "targets/test_delta_table", "targets/test_snowflake_copies",
    )
)  # fmt: skip
"""Files with so many cases of every target, statements of Spark's or operators that one third runs at a time."""
SHIFT = 12
"""Commits until the next half or third has its turn: all cases that take turns by themselves come up meanwhile."""
VARIABLE = "TAILRACE_TURN"
ALL = "all"


def turns(*cases: object) -> list[ParameterSet]:
    """The cases as parameters of a test or a fixture; one runs at a time. A tuple is several arguments."""
    marks = [pytest.mark.turn(number, len(cases)) for number in range(len(cases))]
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=mark) for value, mark in zip(values, marks, strict=True)]


def deselect_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases whose turn it is not. A test that the command line names (with `::`) runs all its cases."""
    if turn() is None or any("::" in argument for argument in config.args):
        return
    now = [item for item in items if _is_now(item)]
    for file in DEAR | DEAREST:
        cases = [item for item in now if _file(item) == file]
        resting = set(cases) - set(cases[_part(file) :: _parts(file)])
        now = [item for item in now if item not in resting]
    if len(now) < len(items):
        chosen = set(now)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = now


def _parts(file: str) -> int:
    return 3 if file in DEAREST else 2


def _part(file: str) -> int:
    """0: the first of the file's cases runs, and each second or third one after it. Half of the files begin with the
    others: else all files with one case would run, whole drivers among them, or none."""
    return ((turn() or 0) // SHIFT + zlib.crc32(file.encode()) // 2) % _parts(file)


def _is_now(item: pytest.Item) -> bool:
    """Cases are counted from a number of the test's file: the files of a run do not all get the first of theirs.

    Several parameters are the digits of one number, so that all their combinations come up.
    """
    number = (turn() or 0) + zlib.crc32(_file(item).encode())
    for mark in item.iter_markers("turn"):
        number, now = divmod(number, mark.args[1])
        if mark.args[0] != now:
            return False
    return True


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def major_for(test_id: str) -> int:
    """PostgreSQL's version for a test: the oldest and the newest supported one take turns."""
    return one_of([min(servers.POSTGRES_VERSIONS), max(servers.POSTGRES_VERSIONS)], test_id)


def release_for(product: str, test_id: str) -> str:
    """The same of `mysql_packages.RELEASES`; `product`: mysql or mariadb."""
    return one_of([name for name in mysql_packages.RELEASES if name.startswith(product)], test_id)


def one_of(cases: Iterable[Version], name: str) -> Version:
    """The case of this turn for a test's or a file's name."""
    cases = list(cases)
    return cases[((turn() or 0) + zlib.crc32(name.encode())) % len(cases)]


def seeds(count: int) -> list[int]:
    """Seeds of a random test: others in each turn (three times as many where all cases run), and one drawn by chance.
    The test prints them."""
    number = turn()
    given = range(3 * count) if number is None else range(number * count, (number + 1) * count)
    return [*given, random.SystemRandom().randrange(2**32)]


def turn() -> int | None:
    """This run's turn, the same in all its processes; None: all cases run."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(_commits())
    value = os.environ[VARIABLE]
    return None if value == ALL else int(value)


def _commits() -> int:
    """The number of commits up to this one; 0 where the tree is not a repository."""
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return int(counted.stdout) if counted.returncode == 0 else 0
