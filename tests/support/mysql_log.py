"""Capture of a MySQL or MariaDB without its process: the real stream and the real recorder over a journal in a folder.

`LogRun.catch_up()` reads to the end of the server's log and makes it durable; a new `LogRun` over the same folder is a
restart. `rows` is what the change log makes of a table that was empty when its capture began.
"""

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from support.mysql import MysqlServer
from support.origins import origin
from support.segment_files import read_segment
from tailrace.capture.recorder import Recorder
from tailrace.changelog.keys import Key
from tailrace.changelog.records.terms import Position
from tailrace.changelog.segments import DELETE, MOVE, OLD_KEY, OP, SEQ
from tailrace.changelog.state import TableLog
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.places import StorageSpec
from tailrace.contract.resources import Replicator, TableOptions
from tailrace.databases.mysql.connect import connect
from tailrace.sources.api import KeyRange, StreamContext
from tailrace.sources.mysql import catalog, chunks
from tailrace.sources.mysql.log.stream import MysqlStream
from tailrace.sources.mysql.log_end import log_end
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.position import OWN
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.storage.store import Storage

PATIENCE = 60.0
"""Seconds."""


def config_of(server: MysqlServer, user: str | None = None) -> SourceConfig:
    return SourceConfig(server.host, server.port, None, user or server.user, "tailrace-tests", tls_mode="disable")


def executed(server: MysqlServer) -> str:
    """The state from which a stream brings only what comes later."""
    asked = "@@GLOBAL.gtid_binlog_pos" if server.mariadb else "@@GLOBAL.gtid_executed"
    return "".join(str(server.execute(f"SELECT {asked}")[0][0]).split())


def table_of(server: MysqlServer, name: str, options: TableOptions | None = None) -> MysqlTable | None:
    """None: it cannot be captured as it is now."""
    with closing(connect(config_of(server))) as connection:
        schema, _, table_name = name.partition(".")
        table = catalog.table_by_name(connection, schema, table_name, options)
    return None if table is None or table.stop else table


def by_chunk(server: MysqlServer, name: str, options: TableOptions | None = None) -> list[dict[str, Any]]:
    """The rows of a table as a chunk reads them."""
    table = table_of(server, name, options)
    assert table is not None
    batches: list[pa.RecordBatch] = []
    chunks.read_chunk(config_of(server), table, KeyRange(None, None), None, batches.append)
    return [row for batch in batches for row in batch.to_pylist()]


def keys_in_chunks(server: MysqlServer, name: str, options: TableOptions | None = None) -> list[Key]:
    """The last key of chunks of one row."""
    schema, _, table_name = name.partition(".")
    with closing(connect(config_of(server))) as connection:
        table = catalog.table_by_name(connection, schema, table_name, options)
        assert table is not None and table.stop is None
        keys = chunks.MysqlKeys(connection, table)
        last = keys.max_key()
        assert last is not None
        found: list[Key] = []
        while not found or found[-1] != last:
            found.append(keys.boundary(found[-1] if found else None, 1, last) or last)
            assert len(set(found)) == len(found), "a chunk ends where one before it does"
        assert keys.normal_keys(found) == tuple(found)
    return found


def exactly(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """Tells -0.0 from 0.0, 1.0 from 1 and a decimal's digits."""
    return [[(name, repr(value)) for name, value in row.items()] for row in rows]


class LogRun:
    def __init__(
        self,
        server: MysqlServer,
        folder: Path,
        memory: int = 8 << 20,
        include: str = "d.*",
        *,
        options: Sequence[dict[str, Any]] = (),
        user: str | None = None,
        initial: bool = True,
    ) -> None:
        """`options`, `initial`: `spec.options` and `spec.snapshot.initial` of the manifest. `user`: None: the server's
        own."""
        self.server = server
        self._connection = connect(config_of(server, user))
        storage = Storage.open(StorageSpec(location=(folder / "log").as_uri()))
        self.journal = self._opened(storage)
        self.recorder = Recorder(self.journal, lambda: None, lambda _: None)
        self.storage = storage
        context = StreamContext(self.recorder, self._settle, "n", folder / "scratch", memory)
        replicator = _replicator(folder, include, options, initial)
        self.stream = MysqlStream(config_of(server, user), self._connection, replicator, 4_000_001, context)
        self.stream.start()

    def _opened(self, storage: Storage) -> JournalWriter:
        if storage.exists("journal/00000000000000000000.json"):
            return JournalWriter.claim(storage, f"again-{time.monotonic_ns()}")
        state = executed(self.server)
        return JournalWriter.create(storage, origin(), log_end(self._connection, OWN), "first", source_state=state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._connection.close()

    def _settle(self) -> Position:
        self.stream.cut()
        return self.recorder.durable

    def catch_up(self) -> None:
        """Read up to the end of the server's log; all of it is in records then."""
        self.read()
        self.stream.poll_catalog()
        self.stream.poll_catalog()
        self.stream.cut()

    def read(self) -> None:
        """The same without a look at the catalog."""
        end, until = log_end(self._connection, OWN), time.monotonic() + PATIENCE
        while self.stream.position < end:
            assert time.monotonic() < until, f"the stream is at {self.stream.position}, the log ends at {end}"
            select.select([self.stream.fileno()], [], [], 0.2)
            self.stream.read(1 << 24, 1.0)
        self.stream.cut()

    def table(self, name: str) -> TableLog:
        return next(t for t in self.journal.state.tables.values() if t.schema.name == name)

    @property
    def to_drop(self) -> list[str]:
        """Tables whose copy is to go."""
        return [".".join(dropped.place) for dropped in self.journal.state.dropped]

    def changes(self, name: str) -> list[dict[str, Any]]:
        """All rows of the table's segments, in sequence order."""
        return [row for table in self.segments(name) for row in table.to_pylist()]

    def segments(self, name: str) -> Iterator[pa.Table]:
        """Of the table, in sequence order."""
        for logged in self.table(name).segments:
            one = logged.segment
            yield read_segment(Path(self.storage.access.prefix), one.path, one.table_id, one.first_seq)

    def by_column(self, name: str) -> Iterator[dict[str, Any]]:
        """All rows of the table's segments, under the names that its columns have now. One that has become another is
        NULL in rows from before."""
        table = self.table(name)
        now = {c.id: c.name for c in table.schema.columns}
        versions = {version.table.version: version.table for version in table.schemas}
        for logged, rows in zip(table.segments, self.segments(name), strict=True):
            names = {c.name: now.get(c.id) for c in versions[logged.segment.schema_version].columns}
            empty = dict.fromkeys(now.values())
            for row in rows.to_pylist():
                values = {new: row[old] for old, new in names.items() if new is not None}
                yield empty | values | {k: v for k, v in row.items() if k.startswith("_")}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The table by its changes and TRUNCATEs, ordered by key."""
        table = self.table(name)
        keys = [c.name for c in table.schema.key_columns]
        emptied = [t.seq for t in table.truncates]
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in self.by_column(name):
            if emptied and row[SEQ] > emptied[0]:
                found.clear()
                emptied.pop(0)
            key = tuple(row[k] for k in keys)
            if row[OP] == DELETE:
                found.pop(key, None)
            else:
                assert row[OP] != MOVE or row[OLD_KEY] is not None
                found[key] = {k: v for k, v in row.items() if not k.startswith("_")}
        return [] if emptied else [found[key] for key in sorted(found)]


def _replicator(folder: Path, include: str, options: Sequence[dict[str, Any]], initial: bool) -> Replicator:
    source = {"type": "postgresql", "host": "127.0.0.1", "database": "d", "username": "u"}
    spec = {
        "source": source,
        "tables": {"include": [include]},
        "options": list(options),
        "onTableDrop": "Drop",
        "snapshot": {"initial": initial},
        "target": {"type": "iceberg", "location": (folder / "lake").as_uri()},
        "storage": {"location": (folder / "log").as_uri()},
    }
    resource = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "r"}, "spec": spec}
    return Replicator.model_validate(resource)


def source_rows(server: MysqlServer, columns: str = "id, v") -> list[dict[str, object]]:
    """Of the table `d.t`, by id."""
    names = [name.strip() for name in columns.split(",")]
    found = server.execute(f"SELECT {columns} FROM d.t ORDER BY id")
    return [dict(zip(names, row, strict=True)) for row in found]
