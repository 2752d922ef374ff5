"""Random definitions of a MySQL or MariaDB source: in the end each copy is equal to its source, or its table is stopped
by name for what the target cannot have."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Protocol, cast

from demo.compare import matched
from support import copies_of_mysql, mysql_shop
from support.ddl.copies import UNCOPIED, InMysql, InPostgres, compared
from support.mysql import MysqlServer
from support.mysql_ddl import TABLES, DefinitionWriter
from support.mysql_log import by_chunk, table_of
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.proof.process import forked_copies
from support.resources import replicator as document_of
from support.versions import major_for
from support.warehouse_reader import Service, copies_of
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator

PATIENCE = 120.0
"""Seconds after which a copy must be equal: tables start over meanwhile that have to."""


class CopiesOfMysql(Protocol):
    """Copies of one Replicator, in a target that has no others then."""

    target: dict[str, object]
    """`spec.target`."""

    def differences(self, source: MysqlServer, table: str, names: Sequence[str]) -> list[str]:
        """`names`: the columns that the change log has."""

    def drop(self) -> None: ...


class InDatabase:
    """They are in a PostgreSQL, MySQL or MariaDB."""

    def __init__(self, copies: InPostgres | InMysql) -> None:
        self._copies, self.target = copies, copies.target

    def differences(self, source: MysqlServer, table: str, names: Sequence[str]) -> list[str]:
        return copies_of_mysql.differences(source, self._copies.server, f"d.{table}", self._copies.database)

    def drop(self) -> None:
        self._copies.drop()


class InWarehouse:
    """They are in a warehouse's emulator."""

    def __init__(self, service: Service) -> None:
        self._copies = copies_of(service)
        self.target = self._copies.target

    def differences(self, source: MysqlServer, table: str, names: Sequence[str]) -> list[str]:
        copied = self._copies.read(table)
        if sorted(copied.column_names) != sorted(names):
            return [f"{table} has the columns {sorted(copied.column_names)}, and not {sorted(names)}"]
        wanted, rows = (
            [tuple(_plain(row[name]) for name in names) for row in side]
            for side in (by_chunk(source, f"d.{table}"), copied.to_pylist())
        )
        return list(matched(table, names, [names.index("id")], wanted, rows))

    def drop(self) -> None:
        self._copies.drop()


def _plain(value: object) -> object:
    return compared(value.normalize() if isinstance(value, Decimal) else value)


class MysqlRound:
    """One seed: `fault` is what is wrong in the end, behind the statements that led to it; None: nothing is."""

    def __init__(self, server: MysqlServer, copies: CopiesOfMysql, seed: int) -> None:
        self._server, self._copies, self._seed = server, copies, seed
        self.equal, self.stopped = list[str](), list[str]()
        """Tables, in the end."""

    def fault(self, folder: Path, draws: int, kills: Sequence[str] = ()) -> str | None:
        """`kills`: plans of seams, each for a life of all of Tailrace, while statements are run."""
        folder.mkdir()
        writer = DefinitionWriter(self._server, self._seed, draws)
        document, source = self._document(folder), mysql_shop.source(self._server)
        tables = lake(Replicator.model_validate(document), cast(Any, None))
        copy = Pipeline(document, source, folder, tables)
        copy.retry = PATIENCE
        writer.start()
        for plan in kills:
            lives = forked_copies(copy.manifest, folder, plan, level=False)
            while lives.poll() is None and writer.is_alive():
                time.sleep(0.05)
            if lives.poll() not in (None, -9):
                return self._told(writer, lives.tail())
            lives.kill()
        with copy.running():
            while writer.is_alive():
                copy.turn()
            found = self._settled(copy) if writer.ended else "a statement failed"
        self._copies.drop()
        return None if found is None else self._told(writer, found)

    def _told(self, writer: DefinitionWriter, found: str) -> str:
        return "\n".join([f"seed {self._seed}", *writer.trace, found])

    def _document(self, folder: Path) -> dict[str, Any]:
        return document_of(
            source=mysql_shop.spec(self._server),
            tables={"include": ["d.?"]},
            target=self._copies.target,
            storage={"location": (folder / "log").as_uri()},
            snapshot={"chunkRows": 3, "parallelism": 2},
        )

    def _settled(self, copy: Pipeline) -> str | None:
        with copy.source.session() as session:
            position = Position(session.log_end())
        until, found = time.monotonic() + PATIENCE, list[str]()
        while time.monotonic() < until:
            try:
                copy.settle(position)
            except AssertionError as error:
                return f"{error}; {copy.driver.faults()}"
            self.equal, self.stopped = [], []
            found = [told for table in TABLES for told in self._differences(copy, table)]
            if not found:
                return None
            for _ in range(5):
                copy.turn()
        return "; ".join(found)

    def _differences(self, copy: Pipeline, table: str) -> list[str]:
        there = table_of(self._server, f"d.{table}")
        live = [t for t in copy.state.tables.values() if t.schema.table_name == table and not t.removed]
        fault = next((t.fault for t in copy.driver.control.status().tables if t.name == f"d.{table}"), None)
        if fault is not None and any(words in fault.message for words in UNCOPIED):
            self.stopped.append(table)
            return []
        if there is None or there.stop is not None:
            return []  # it has no key now
        if len(live) != 1 or live[0].stopped is not None or fault is not None:
            return [f"{table} is {live}, {fault}"]
        self.equal.append(table)
        return self._copies.differences(self._server, table, [column.name for column in live[0].schema.columns])


@contextmanager
def between(release: str, product: str) -> Iterator[tuple[MysqlServer, Callable[[], InDatabase]]]:
    """A source of this release, and what makes the target of a round: in PostgreSQL or in another server."""
    with ExitStack() as servers:
        source = servers.enter_context(MysqlServer(release, explicit_defaults_for_timestamp="ON"))
        if product == "postgresql":
            placed, numbers = servers.enter_context(PostgresServer(major_for(release))), count(1)
            yield source, lambda: InDatabase(InPostgres(placed, f"ddl{next(numbers)}"))
        else:
            other = servers.enter_context(MysqlServer(product))
            yield source, lambda: InDatabase(InMysql(other))
