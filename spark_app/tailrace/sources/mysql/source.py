"""MySQL and MariaDB behind the protocols of `tailrace.sources.api`: which module answers which question."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position
from tailrace.contract import resources
from tailrace.contract.resources import Replicator, TableOptions, TablesSpec
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra, TableName
from tailrace.databases.mysql.connect import SERVER_ID, Connection, connect, execute, id_of, server_of, source_errors
from tailrace.databases.mysql.counters import counters as counters_of
from tailrace.databases.mysql.extras import extras as extras_of
from tailrace.databases.wire import WireForm
from tailrace.errors import TableStop, met_at
from tailrace.sources.api import ChunkRead, KeyList, KeyRange, Table, Writer
from tailrace.sources.findings import Writers
from tailrace.sources.mysql import admission, catalog, chunks, log_end, writers
from tailrace.sources.mysql.log.tables import followed
from tailrace.sources.mysql.model import MysqlTable
from tailrace.sources.mysql.position import Numbering
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.subscription import MysqlSubscription
from tailrace.sources.mysql.visibility import visibility
from tailrace.sources.visibility import Visibility


@dataclass(frozen=True)
class MysqlSource:
    config: SourceConfig

    @staticmethod
    def of(spec: resources.SourceSpec, who: str, secrets: Path | None = None) -> "MysqlSource":
        return MysqlSource(SourceConfig.of(spec, who, secrets))

    @property
    def place(self) -> str:
        return self.config.place

    def text(self, position: Position) -> str:
        return self.config.numbering.text(position)

    def bound_to(self, origin: Origin) -> "MysqlSource":
        return MysqlSource(admission.bound(self.config, origin))

    @contextmanager
    def session(self) -> Iterator["MysqlSession"]:
        with met_at("source"), closing(connect(self.config)) as connection:
            yield MysqlSession(connection, self.config.numbering)

    def reader(self) -> "MysqlReader":
        return MysqlReader(self.config)

    @contextmanager
    def subscription(self, replicator: Replicator, root: str) -> Iterator[MysqlSubscription]:
        with closing(connect(self.config)) as connection:
            yield MysqlSubscription(self.config, connection, replicator)

    def visibility(self, snapshot: str) -> Visibility:
        return visibility(snapshot, self.config.identity, self.config.numbering)


@dataclass(frozen=True)
class MysqlReader:
    config: SourceConfig
    opened: chunks.Opened | None = None
    """None: each chunk has a connection to itself."""

    @contextmanager
    def kept(self) -> Iterator["MysqlReader"]:
        with closing(chunks.kept_connection(self.config)) as connection:
            yield MysqlReader(self.config, connection.use)

    def read(self, table: Table, part: KeyRange | KeyList, where: str | None, write: Writer) -> ChunkRead:
        with met_at("source"):
            return chunks.read_chunk(self.config, _own(table), part, where, write, self.opened)

    def wire(self, table: Table, form: WireForm) -> None:
        """The server sends texts, which its `LOAD DATA` does not read."""


@dataclass(frozen=True)
class MysqlSession:
    connection: Connection
    numbering: Numbering

    def database_id(self) -> str | None:
        """The server's: its databases are those of the target."""
        with source_errors("asking the source for its identity"):
            return id_of(execute(self.connection, SERVER_ID))

    def extras(self, tables: Collection[TableName]) -> list[Extra]:
        with source_errors("looking at indexes and defaults"):
            return extras_of(partial(execute, self.connection), tables)

    def counters(self, tables: Collection[TableName]) -> list[Counter]:
        with source_errors("looking at AUTO_INCREMENT"):
            return counters_of(partial(execute, self.connection), server_of(self.connection), tables)

    def writers(self, since: str | None, stopped: bool) -> Writers:
        return writers.writers(self.connection, stopped)

    def current_snapshot(self) -> str:
        return log_end.current_snapshot(self.connection, self.numbering)

    def log_end(self) -> Position:
        return log_end.log_end(self.connection, self.numbering)

    def tables(self, patterns: TablesSpec, options: Sequence[TableOptions]) -> tuple[MysqlTable, ...]:
        with source_errors("looking for the source's tables"):
            return catalog.discover(self.connection, patterns, options)

    def table(self, table_id: int, options: Sequence[TableOptions]) -> MysqlTable | None:
        with source_errors("looking for a table of the source"):
            return catalog.table_by_id(self.connection, table_id, options)

    def unfollowed(self, before: Table, now: Table) -> TableStop | None:
        try:
            followed(before.schema, _own(now))
        except TableStop as stop:
            return stop
        return None

    def obstacle(self, edge: str) -> str | None:
        past = visibility(log_end.visible_transactions(self.connection, self.numbering)).past(edge)
        if past:
            return None
        xa = " (it may be that XA RECOVER lists one that must be decided)" if "/" in edge else ""
        return f"the server, which does not show all transactions of its log yet{xa}"

    def keys(self, table: Table) -> chunks.MysqlKeys:
        return chunks.MysqlKeys(self.connection, _own(table))


def _own(table: Table) -> MysqlTable:
    """Tables come back to the source that made them."""
    assert isinstance(table, MysqlTable)
    return table
