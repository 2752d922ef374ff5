"""Random definitions of a MySQL or MariaDB source, copied into a warehouse's emulator: each copy is equal to its
source, or its table is stopped by name for what a warehouse cannot have."""

import time
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from demo.compare import matched
from support import mysql_shop
from support.ddl.copies import UNCOPIED, compared
from support.mysql import MysqlServer
from support.mysql_ddl import TABLES, DefinitionWriter
from support.mysql_log import by_chunk, table_of
from support.pipeline import Pipeline, lake
from support.resources import replicator as document_of
from support.warehouse_reader import Service, copies_of
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator

PATIENCE = 120.0
"""Seconds after which a copy must be equal: tables start over meanwhile that have to."""


class WarehouseRound:
    """One seed: `fault` is what is wrong in the end, behind the statements that led to it; None: nothing is."""

    def __init__(self, server: MysqlServer, service: Service, seed: int) -> None:
        self._server, self._seed = server, seed
        self._copies = copies_of(service)
        self.equal, self.stopped = list[str](), list[str]()
        """Tables, in the end."""

    def fault(self, folder: Path, draws: int) -> str | None:
        folder.mkdir()
        writer = DefinitionWriter(self._server, self._seed, draws)
        document, source = self._document(folder), mysql_shop.source(self._server)
        tables = lake(Replicator.model_validate(document), cast(Any, None))
        copy = Pipeline(document, source, folder, tables)
        copy.retry = PATIENCE
        with copy.running():
            writer.start()
            while writer.is_alive():
                copy.turn()
            found = self._settled(copy) if writer.ended else "a statement failed"
        self._copies.drop()
        return None if found is None else "\n".join([f"seed {self._seed}", *writer.trace, found])

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
            copy.settle(position)
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
        source, names = by_chunk(self._server, f"d.{table}"), [column.name for column in live[0].schema.columns]
        copied = self._copies.read(table)
        if sorted(copied.column_names) != sorted(names):
            return [f"{table} has the columns {sorted(copied.column_names)}, and not {sorted(names)}"]
        wanted, rows = (
            [tuple(_plain(row[name]) for name in names) for row in side] for side in (source, copied.to_pylist())
        )
        return list(matched(table, names, [names.index("id")], wanted, rows))


def _plain(value: object) -> object:
    return compared(value.normalize() if isinstance(value, Decimal) else value)
