"""The writer of a database's chunks: each into a staging table or, in a first copy, at times into the copy itself.

Made by `sql.unit`, used on executors by `reading.task`; `sql.staged` has the staging tables, `sql.loaded` the rest.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from typing_extensions import override

from tailrace.changelog import keys
from tailrace.changelog.records.terms import Key, TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.databases.wire import WireForm, WireRefused, WireRows
from tailrace.errors import Retry, TailraceError, TargetRefused
from tailrace.seams import seam
from tailrace.targets.api import WrittenChunk
from tailrace.targets.sql import loaded
from tailrace.targets.sql.session import NUMBER, Place, TargetSession, TargetSessions, UnfitValue, table
from tailrace.targets.sql.staged import NUMBERED, defined, definitions, drop
from tailrace.targets.sql.state import SCHEMA

PIECE = 1 << 20
"""Bytes of a piece of a chunk's keys: servers limit what a statement or a row may have."""


@dataclass(frozen=True)
class SqlChunkWriter:
    """See `targets.api.ChunkWriter`."""

    sessions: TargetSessions
    log_id: str
    schema: TableSchema
    form: str
    copy: tuple[Place, int] | None = None
    """The copy and its relation, if rows may be loaded into it at times (`sql.loaded`)."""
    wire_form: WireForm | None = None
    """The form in which it takes rows that a server has sent; None: in none."""

    @property
    def wire(self) -> "SqlWireWriter | None":
        return None if self.wire_form is None else SqlWireWriter(self, self.wire_form)

    def possible(self, asked: Sequence[Key]) -> tuple[Key, ...]:
        return keys.fitting(asked, [arrow_type(column.type) for column in self.schema.key_columns])

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        return self.put(snapshot_id, ArrivingValues(self.schema, rows))

    def put(self, snapshot_id: str, rows: "Arriving") -> WrittenChunk | None:
        """Readers of the staging table see all of it, or nothing."""
        name = f"{self.schema.table_id}_{secrets.token_hex(8)}"
        with self.sessions.session() as session:
            path = ""

            def define() -> None:
                nonlocal path
                path = f"{loaded.PREFIX if self._enters(session, snapshot_id) else 'chunk_'}{name}"
                session.run(
                    f"INSERT INTO {SCHEMA}.chunks (path, log_id, table_id, row_count) VALUES (%s, %s, %s, 0)",
                    path,
                    self.log_id,
                    self.schema.table_id,
                )
                if not loaded.is_loaded(path):
                    session.unlogged(f"{SCHEMA}.{path}", defined(definitions(session, self.schema, NUMBERED)))

            try:
                with session.transaction(define):
                    size = self._load(session, path, rows)
                    if rows.count:
                        session.run(f"UPDATE {SCHEMA}.chunks SET row_count = %s WHERE path = %s", rows.count, path)
                        _put_keys(session, path, rows.kept_keys())
                    else:
                        drop(session, [path])
            except BaseException as error:
                # Where definitions commit by themselves, each attempt would leave a table, and on a full disk take what
                # is left of it. (One whose process dies is dropped after the snapshot.)
                with suppress(TailraceError):
                    drop(session, [path] if path else ())
                if isinstance(error, UnfitValue):
                    raise error.of(self.schema.name) from None
                if isinstance(error, TargetRefused) and self._is_of_copy(session, path):
                    # Staged from now on: it is the batch that refuses them, which stops this table and no other.
                    raise Retry(error.message, error.fix) from error
                raise
            if loaded.is_loaded(path):
                # Dying here is safe: rows that no batch takes leave the copy before it gets its key.
                seam("load.after-commit")
            return WrittenChunk(path, rows.count, size) if rows.count else None

    def _enters(self, session: TargetSession, snapshot_id: str) -> bool:
        """True if the copy itself takes the rows."""
        if self.copy is None:
            return False
        place, relation = self.copy
        loads = loaded.Loads(relation, self.form, snapshot_id)
        return loaded.enter(session, place, loads, definitions(session, self.schema))

    def _is_of_copy(self, session: TargetSession, path: str) -> bool:
        """True if it is the copy that refused rows, or to be entered (no `path` yet). It is to take no more."""
        if self.copy is None or (path and not loaded.is_loaded(path)):
            return False
        return loaded.withdraw(session, self.copy[1]) or loaded.is_loaded(path)

    def _load(self, session: TargetSession, path: str, rows: "Arriving") -> int:
        if self.copy is None or not loaded.is_loaded(path):
            return rows.load(session, f"{SCHEMA}.{path}", numbered=True)
        place, relation = self.copy
        size = rows.load(session, table(session, place), numbered=False)
        if rows.count:
            loaded.note(session, path, relation, rows.count)
        return size

    def discard(self, paths: Sequence[str]) -> None:
        with self.sessions.session() as session:
            drop(session, paths)


@dataclass(frozen=True)
class SqlWireWriter:
    """See `targets.api.WireWriter`."""

    writer: SqlChunkWriter
    form: WireForm

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[WireRows]) -> WrittenChunk | None:
        return self.writer.put(snapshot_id, ArrivingSent(self.writer.schema, rows, self.form))


@dataclass
class Arriving(ABC):
    """The rows of a chunk on their way: counted, and their keys kept."""

    schema: TableSchema
    count: int = field(default=0, init=False)
    _keys: list[pa.Table] = field(default_factory=list, init=False)

    @abstractmethod
    def load(self, session: TargetSession, into: str, *, numbered: bool) -> int:
        """Load all rows into a table, which has a column for their numbers or not. Returns their bytes."""

    def _note(self, count: int, keys: pa.Table) -> None:
        self.count += count
        self._keys.append(keys)

    def kept_keys(self) -> bytes:
        if not self.schema.key_columns:
            return b""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self._keys[0].schema, options=options) as stream:
            for part in self._keys:
                stream.write_table(part)
        kept: bytes = sink.getvalue().to_pybytes()
        return kept


@dataclass
class ArrivingValues(Arriving):
    rows: Iterable[pa.Table]

    @override
    def load(self, session: TargetSession, into: str, *, numbered: bool) -> int:
        more = [NUMBERED] if numbered else []
        return session.load(into, definitions(session, self.schema, *more), self._passing(numbered))

    def _passing(self, numbered: bool) -> Iterator[pa.Table]:
        key, names = [c.name for c in self.schema.key_columns], [c.name for c in self.schema.columns]
        for part in self.rows:
            if part.num_rows:
                numbers = pa.array(np.arange(self.count, self.count + part.num_rows, dtype=np.int64))
                self._note(part.num_rows, part.select(key))
                rows = part.select(names)
                yield rows.add_column(0, NUMBER, numbers) if numbered else rows


@dataclass
class ArrivingSent(Arriving):
    rows: Iterable[WireRows]
    form: WireForm

    @override
    def load(self, session: TargetSession, into: str, *, numbered: bool) -> int:
        if session.wire is None or wire_form(session, self.schema) != self.form:
            raise WireRefused
        load = session.wire.load_numbered if numbered else session.wire.load
        return load(into, [session.quote(name) for name, _ in self.form.columns], self._passing())

    def _passing(self) -> Iterator[WireRows]:
        for part in self.rows:
            self._note(len(part.ends), pa.Table.from_batches([part.keys]))
            yield part


def wire_form(session: TargetSession, schema: TableSchema) -> WireForm | None:
    """The form in which a writer of such rows takes what a server has sent: the columns that `definitions` has."""
    if session.wire is None or schema.keyless:
        return None
    columns = [*schema.key_columns, *(column for column in schema.columns if column.key is None)]
    return WireForm(session.wire.product, tuple((c.name, session.type_of(schema, c)) for c in columns))


def _put_keys(session: TargetSession, path: str, keys: bytes) -> None:
    statement = f"INSERT INTO {SCHEMA}.keys_of_chunks (path, piece, row_keys) VALUES (%s, %s, %s)"
    for number, at in enumerate(range(0, len(keys), PIECE)):
        session.run(statement, path, number, keys[at : at + PIECE])
