"""Transactions of 300 MB, plain and XA, go through capture in less than half of that."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.mysql_log import LogRun
from support.versions import turns

ROWS, BYTES = 1000, 300_000
MEMORY = 8 << 20
"""What the stream may hold before it becomes segments."""
MOST = 128 << 20
"""Bytes by which the process may grow: a block, its decoded columns, the segment made of them, and the allocators'
leftovers."""


@pytest.fixture(params=turns(MYSQL, MARIADB_NEWEST))
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    room: dict[str, str | int] = {} if request.param == MARIADB_NEWEST else {"innodb_redo_log_capacity": "256M"}
    with MysqlServer(request.param, max_allowed_packet="64M", **room) as running:
        running.script(
            "CREATE DATABASE d",
            "CREATE TABLE d.digits (n int PRIMARY KEY)",
            "INSERT INTO d.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
            "CREATE TABLE d.t (id int PRIMARY KEY, v longtext)",
        )
        yield running


def filled(first: int) -> str:
    number = f"{first} + a.n * 100 + b.n * 10 + c.n"
    text = f"REPEAT(CHAR(97 + ({number}) % 26 USING ascii), {BYTES})"
    return f"INSERT INTO d.t SELECT {number}, {text} FROM d.digits a, d.digits b, d.digits c"


def memory(name: str) -> int:
    """Bytes: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10


@contextmanager
def in_little_memory() -> Iterator[None]:
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the greatest size counts from here
    before = memory("VmRSS")
    yield
    grown = memory("VmHWM") - before
    print(f"grown by {grown >> 20} MB")
    assert grown < MOST


def keys(run: LogRun) -> list[int]:
    """Of all changes; each has its whole text."""
    found: list[int] = []
    for table in run.segments("d.t"):
        ids = table["id"].to_pylist()
        assert table["v"].to_pylist() == [chr(97 + i % 26) * BYTES for i in ids]
        assert not pc.any(pc.not_equal(table["_op"], "I")).as_py()
        found += ids
    return sorted(found)


def test_a_large_transaction_is_captured_piece_by_piece(server: MysqlServer, tmp_path: Path) -> None:
    with LogRun(server, tmp_path, MEMORY, "d.t") as run:
        server.execute(filled(0))
        with in_little_memory():
            run.catch_up()
        assert keys(run) == list(range(ROWS))


def test_a_large_xa_transaction_is_held_on_disk_through_a_restart(server: MysqlServer, tmp_path: Path) -> None:
    """A server that may lose the rows of such a commit has them looked up by their keys."""
    detaches = not server.mariadb
    with LogRun(server, tmp_path, MEMORY, "d.t") as run:
        server.script("XA START 'large'", filled(0), "XA END 'large'", "XA PREPARE 'large'")
        with in_little_memory():
            run.catch_up()
        assert keys(run) == []
    with LogRun(server, tmp_path, MEMORY, "d.t") as run:
        server.execute("XA COMMIT 'large'")
        with in_little_memory():
            run.catch_up()
        if detaches:
            assert keys(run) == list(range(ROWS))
        else:
            tables = run.segments("d.t")
            assert sorted(i for table in tables for i in table["id"].to_pylist()) == list(range(ROWS))
            assert all(table["v"].null_count == table.num_rows for table in tables)
