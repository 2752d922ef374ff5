"""Damaged logs of real servers: events are changed, cut, left out, repeated and exchanged, as without checksums. A log
ends with an error that has a name, or gives rows of the tables' types; never anything else, and soon.

`TAILRACE_SOAK_DAMAGED_SECONDS` (default 600) of random logs from seed `TAILRACE_SOAK_DAMAGED_SEED` (default 0) on.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from mysql_packages import RELEASES
from support import mysql_shop
from support.mysql import MYSQL, MysqlServer
from support.mysql_log import LogRun, config_of
from tailrace.changelog.records.terms import Position
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import TablesSpec
from tailrace.databases.mysql.connect import connect
from tailrace.errors import TailraceError
from tailrace.sources.mysql.catalog import discover
from tailrace.sources.mysql.log.assembler import Assembler
from tailrace.sources.mysql.log.blocks import EventBlock
from tailrace.sources.mysql.log.collations import charsets
from tailrace.sources.mysql.log.decode import Decoder
from tailrace.sources.mysql.log.events import Query
from tailrace.sources.mysql.log.executed import Executed
from tailrace.sources.mysql.log.framing import Event
from tailrace.sources.mysql.log.log_position import StartingPoint
from tailrace.sources.mysql.log.statements import KnownTables, effects
from tailrace.sources.mysql.log.tables import CapturedTables
from tailrace.sources.mysql.log.xa_buffer import XaBuffer
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.position import OWN

SECONDS = float(os.environ.get("TAILRACE_SOAK_DAMAGED_SECONDS", "600"))
SEED = int(os.environ.get("TAILRACE_SOAK_DAMAGED_SEED", "0"))
SLOW = 20.0
"""Seconds that no log of this size may take."""
NAMES = [("shop", name) for name in mysql_shop.TABLES]


class Sink:
    """`block_builder.Blocks` with the real decoder behind it."""

    touched = False

    def __init__(self, found: list[MysqlTable], collations: dict[int, str], mariadb: bool) -> None:
        by_id = {table.id: table for table in found}
        self.tables = CapturedTables(by_id.get, collations, mariadb)
        for table in found:
            self.tables.add(table.schema.model_copy(update={"version": 1}), table=table)
        self._decoder = Decoder(self.tables)
        self.count = 0

    def wants(self, form: bytes) -> bool:
        return self.tables.is_captured(self.tables.number(form))

    def rows(self, block: EventBlock) -> None:
        for found in self._decoder.decode(block, 1).tables:
            for column in found.schema.columns:
                assert found.rows.schema.field(column.name).type == arrow_type(column.type)
            found.rows.validate(full=True)
            self.count += len(found.rows)

    def statement(self, query: Query) -> list[bytes]:
        effects(query.text, KnownTables(query.schema, NAMES))
        return []

    def cut(self, rows: bool | None = None) -> None: ...

    def undone(self, forms: Iterable[bytes] | None) -> None: ...

    def crashed(self) -> None: ...

    def ended(self) -> None: ...

    def rotated(self) -> None: ...


def recorded(server: MysqlServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events of every kind that a server writes by itself, as the assembler gets them."""
    mysql_shop.create(server)
    server.execute("CREATE TABLE shop.xa (id int PRIMARY KEY, v text)")
    found: list[Event] = []
    feed = Assembler.feed

    def keep(assembler: Assembler, event: Event) -> None:
        found.append(event)
        feed(assembler, event)

    with monkeypatch.context() as patch, LogRun(server, folder, include="shop.*") as run:
        patch.setattr(Assembler, "feed", keep)
        patch.setattr(Assembler, "feed_many", lambda one, batch: [one.feed(e) for e in batch.each(0, len(batch))])
        with mysql_shop.writers(server, xa=True):
            time.sleep(3)
        compressed = "SET SESSION binlog_transaction_compression = ON"
        if server.mariadb:
            compressed = "SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10"
        elif server.name != MYSQL:
            compressed = "DO 1"
        server.script(compressed, "UPDATE shop.plain SET v = REPEAT('x', 300)", "TRUNCATE shop.pairs")
        server.script("ALTER TABLE shop.plain ADD COLUMN more int", "FLUSH LOGS", "DELETE FROM shop.plain WHERE id < 9")
        run.catch_up()
    return found


def damaged(log: list[Event], random: Random) -> list[Event]:
    start = random.randrange(len(log))
    part = log[start : start + random.randint(2, 400)] if random.random() < 0.8 else list(log)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(part))
        match random.randrange(8):
            case 0:
                part.insert(at, random.choice(log))
            case 1 if len(part) > 1:
                del part[at]
            case 2:
                _, *rest, body = part[at]
                part[at] = (random.choice(log)[0], *rest, body)  # type: ignore[assignment]  # a tuple of six
            case 3:
                *rest, body = part[at]
                part[at] = (*rest, body[: random.randint(0, len(body))])  # type: ignore[assignment]  # the same
            case _:
                *rest, body = part[at]
                part[at] = (*rest, _changed(body, random))  # type: ignore[assignment]  # the same
    return part


def _changed(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(random.choice([1, 1, 2, 8])):
        if changed:
            # What says how the rest is to be read stands at the beginning.
            last = len(changed) - 1 if random.random() < 0.5 else min(40, len(changed) - 1)
            changed[random.randint(0, last)] = random.choice(
                [0, 1, 127, 128, 251, 252, 253, 254, 255, random.randrange(256)]
            )
    return bytes(changed)


@pytest.fixture(params=RELEASES)
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(request.param) as running:
        yield running


@pytest.mark.timeout(SECONDS + 600)
def test_a_damaged_log_ends_with_a_named_error_or_gives_rows_of_the_form(
    server: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = recorded(server, tmp_path / "log", monkeypatch)
    with closing(connect(config_of(server))) as connection:
        found = list(discover(connection, TablesSpec(include=("shop.*",))))
        collations = dict(charsets(connection))
    seed, rows, named = SEED, 0, dict[str, int]()
    end = time.monotonic() + SECONDS / len(RELEASES)
    while time.monotonic() < end:
        sink, held = Sink(found, collations, server.mariadb), XaBuffer(tmp_path / "held")
        start = StartingPoint(Position(0), OWN)
        assembler = Assembler(sink, Executed("", server.mariadb), held, 1 << 20, start)
        begun = time.monotonic()
        try:
            for event in damaged(log, Random(seed)):
                assembler.feed(event)
            assembler.builder.cut()
        except TailraceError as error:
            named[error.name] = named.get(error.name, 0) + 1
        except BaseException as error:
            raise AssertionError(f"seed {seed} of {server.name}: {error!r}") from error
        assert time.monotonic() - begun < SLOW, f"seed {seed} of {server.name}"
        rows += sink.count
        seed += 1
    shutil.rmtree(tmp_path / "held")
    print(f"{server.name}: {len(log)} events, seeds {SEED} to {seed - 1}: {rows} rows, errors {named}")
    assert rows and named
