"""PostgreSQL behind the protocols of `tailrace.sources.api`: which module answers which question."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position
from tailrace.contract import resources
from tailrace.contract.ownership import MAX_IDENTIFIER
from tailrace.contract.resources import Replicator, TableOptions, TablesSpec
from tailrace.databases.counters import Counter
from tailrace.databases.extras import Extra, TableName
from tailrace.databases.postgresql.connect import DATABASE, Connection, PgConfig, connect, source_errors
from tailrace.databases.postgresql.counters import NoRight
from tailrace.databases.postgresql.counters import counters as counters_of
from tailrace.databases.postgresql.extras import extras as extras_of
from tailrace.databases.wire import WireForm
from tailrace.errors import SourceRefused, TableStop, met_at
from tailrace.sources.api import ChunkRead, KeyList, KeyRange, Table, Writer
from tailrace.sources.findings import Writers
from tailrace.sources.postgresql import admission, catalog, chunks, objects, preflight, writers
from tailrace.sources.postgresql.log.connection import lsn_text
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.subscription import PgSubscription
from tailrace.sources.postgresql.visibility import PgSnapshot, parse_snapshot
from tailrace.sources.postgresql.wire import PgWireReader


@dataclass(frozen=True)
class PgSource:
    config: PgConfig

    @staticmethod
    def of(spec: resources.SourceSpec, who: str, secrets: Path | None = None) -> "PgSource":
        return PgSource(PgConfig.of(spec, who[:MAX_IDENTIFIER], secrets))

    @property
    def place(self) -> str:
        return self.config.place

    def text(self, position: Position) -> str:
        return lsn_text(position)

    def bound_to(self, origin: Origin) -> "PgSource":
        admission.check_database(origin, self.config.database)
        return PgSource(self.config.bound_to(*admission.bound(origin)))

    @contextmanager
    def session(self) -> Iterator["PgSession"]:
        with met_at("source"), connect(self.config) as connection:
            yield PgSession(connection)

    def reader(self) -> "PgReader":
        return PgReader(self.config)

    @contextmanager
    def subscription(self, replicator: Replicator, root: str) -> Iterator[PgSubscription]:
        with connect(self.config) as connection:
            yield PgSubscription(self.config, connection, replicator, root)

    def visibility(self, snapshot: str) -> PgSnapshot:
        return parse_snapshot(snapshot)


@dataclass(frozen=True)
class PgReader:
    config: PgConfig
    opened: chunks.Opened | None = None
    """None: each chunk has a connection to itself."""

    @contextmanager
    def kept(self) -> Iterator["PgReader"]:
        with closing(chunks.kept_connection(self.config)) as connection:
            yield PgReader(self.config, connection.use)

    def read(self, table: Table, part: KeyRange | KeyList, where: str | None, write: Writer) -> ChunkRead:
        with met_at("source"):
            return chunks.read_chunk(self.config, _own(table), part, where, write, self.opened)

    def wire(self, table: Table, form: WireForm) -> PgWireReader | None:
        return PgWireReader.of(self.opened or (lambda: closing(connect(self.config))), _own(table), form)


@dataclass(frozen=True)
class PgSession:
    connection: Connection

    def database_id(self) -> str:
        with source_errors("asking the source for its identity"):
            found = self.connection.execute(DATABASE.encode()).fetchone()
        assert found is not None
        return str(found[0])

    def extras(self, tables: Collection[TableName]) -> list[Extra]:
        with source_errors("looking for defaults, sequences and indexes"):
            return extras_of(lambda sql, *names: self.connection.execute(sql.encode(), names).fetchall(), tables)

    def counters(self, tables: Collection[TableName]) -> list[Counter]:
        with source_errors("looking at sequences"):
            try:
                return counters_of(lambda sql, *v: self.connection.execute(sql.encode(), v or None).fetchall(), tables)
            except NoRight as missing:
                grant = f"GRANT SELECT ON SEQUENCE {missing.sequence} TO {self.connection.info.user}"
                raise SourceRefused(
                    f"sequence {missing.sequence} of the source may not be read", f"Run `{grant}`."
                ) from None

    def writers(self, since: str | None, stopped: bool) -> Writers:
        return writers.writers(self.connection, since, stopped)

    def current_snapshot(self) -> str:
        return objects.snapshot(self.connection)

    def log_end(self) -> Position:
        with source_errors("looking at the source's log"):
            preflight.require_logical(self.connection)
        return objects.identify(self.connection).insert_position

    def tables(self, patterns: TablesSpec, options: Sequence[TableOptions]) -> tuple[PgTable, ...]:
        with source_errors("looking for the source's tables"):
            return catalog.discover(self.connection, patterns, options)

    def table(self, table_id: int, options: Sequence[TableOptions]) -> PgTable | None:
        with source_errors(f"looking at the table with oid {table_id}"):
            return catalog.table_by_oid(self.connection, table_id, options)

    def unfollowed(self, before: Table, now: Table) -> TableStop | None:
        return now.stop or first_stop(before.schema, now.schema)

    def obstacle(self, edge: str) -> str | None:
        return chunks.edge_passed(self.connection, edge)

    def keys(self, table: Table) -> chunks.PgKeys:
        return chunks.PgKeys(self.connection, _own(table))


def _own(table: Table) -> PgTable:
    """Tables come back to the source that made them."""
    assert isinstance(table, PgTable)
    return table
