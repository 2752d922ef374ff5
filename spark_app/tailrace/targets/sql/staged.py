"""Chunks in a database: a staging table for each, filled by an executor (`sql.chunk_writer`), moved into the copy by a
later batch.

A staging table is not logged: a crash of the server empties it, which counts as a lost chunk. Its keys are kept beside
it as an Arrow stream, so that the driver reads them as exactly as it reads the change log. `sql.unit` makes the
writers; `sql.batch` and `sql.keyless` read what they wrote.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from tailrace.batch.applied import Generation
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.fold.concerned import disjoint
from tailrace.fold.fold_input import FoldInput
from tailrace.fold.key_columns import Columns, Ints, taken, typed, words
from tailrace.targets.api import ChunkLost
from tailrace.targets.sql import loaded
from tailrace.targets.sql.session import (
    NUMBER,
    Definitions,
    TargetSession,
    list_of,
)
from tailrace.targets.sql.state import SCHEMA

NUMBERED = (NUMBER, "bigint")


def form_of(session: TargetSession, schema: TableSchema, generation: Generation) -> str:
    """The form of chunks: `ChunkRegistered.layout`."""
    columns = [(column.id, column.name, session.type_of(schema, column)) for column in schema.columns]
    digest = hashlib.sha256(repr((generation.number, columns)).encode()).hexdigest()
    return f"sql-1-{digest[:16]}"


def require_forms(session: TargetSession, generation: Generation, part: TableSlice) -> None:
    """A chunk that was staged for other columns than the table has now counts as lost."""
    written = [chunk for chunk in part.chunks if chunk.path is not None]
    forms = {
        version: form_of(session, part.versions[version], generation)
        for version in {chunk.schema_version for chunk in written}
    }
    other = tuple(chunk for chunk in written if chunk.layout != forms[chunk.schema_version])
    if other:
        names = ", ".join(str(chunk.path) for chunk in other)
        raise ChunkLost(f"chunks were staged for another form of the target: {names}", "They are read again.", other)


def definitions(session: TargetSession, schema: TableSchema, *more: tuple[str, str]) -> Definitions:
    """The columns of a table that holds rows of this version, without constraints, behind `more`."""
    return [*more, *((session.quote(c.name), session.type_of(schema, c)) for c in schema.columns)]


def defined(columns: Definitions) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def drop(session: TargetSession, paths: Iterable[str]) -> None:
    """Forget chunks. Rows that have been loaded into a copy stay: the note of those that no batch has taken, too."""
    for path in paths:
        if loaded.is_loaded(path):
            # Its row first: whoever stages the rows meanwhile (`hold`) is waited for, or finds none.
            with session.transaction():
                session.run(f"DELETE FROM {SCHEMA}.chunks WHERE path = %s", path)
                session.run(f"DELETE FROM {SCHEMA}.loads WHERE path = %s AND applied", path)
                _drop_rows(session, path)
        else:
            _drop_rows(session, path)
            session.run(f"DELETE FROM {SCHEMA}.chunks WHERE path = %s", path)


def _drop_rows(session: TargetSession, path: str) -> None:
    session.run(f"DROP TABLE IF EXISTS {SCHEMA}.{session.quote(path)}")
    session.run(f"DELETE FROM {SCHEMA}.keys_of_chunks WHERE path = %s", path)


def hold(session: TargetSession, paths: Sequence[str]) -> set[str]:
    """Those of the chunks that have not been dropped, and are not until the transaction's end."""
    statement = f"SELECT path FROM {SCHEMA}.chunks WHERE path = ANY (%s) FOR UPDATE"
    return {str(path) for (path,) in session.rows(statement, list(paths))}


def _kept_keys(session: TargetSession, path: str | None) -> Iterator[pa.RecordBatch]:
    """A chunk's keys; none: they are gone."""
    statement = f"SELECT row_keys FROM {SCHEMA}.keys_of_chunks WHERE path = %s ORDER BY piece"
    if found := session.rows(statement, path):
        with pa.ipc.open_stream(b"".join(piece for (piece,) in found)) as stream:
            yield from stream


def numbered_keys(session: TargetSession, path: str, schema: TableSchema) -> Iterator[pa.Table]:
    """A chunk's keys behind their numbers, as rows of a table that has the columns of `schema`."""
    names, kinds = zip(*((c.name, arrow_type(c.type)) for c in schema.key_columns), strict=True)
    at = 0
    for batch in _kept_keys(session, path):
        numbers = pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64))
        columns = typed((batch.column(name) for name in names), kinds)
        at += batch.num_rows
        yield pa.table([numbers, *columns], names=[NUMBER, *names])


def staged_paths(session: TargetSession, log_id: str, table_id: int) -> list[str]:
    statement = f"SELECT path FROM {SCHEMA}.chunks WHERE log_id = %s AND table_id = %s"
    return [str(path) for (path,) in session.rows(statement, log_id, table_id)]


@dataclass
class ServerRows:
    """Rows that stay on the server, under one numbering: what the fold's slow keys have underneath. See
    `fold.decide.BaseRows` and `fold.chunk_keys.ChunkRows`, for which its parts stand."""

    sources: list[tuple[ChunkRegistered | None, Ints]] = field(default_factory=list)
    """Sources in the order in which the fold asked: a chunk and positions in it, or None and numbers of keys."""

    def add(self, work: FoldInput, chunk: ChunkRegistered | None, wanted: Ints) -> pa.Table:
        """A table of so many rows; their values are not needed here."""
        self.sources.append((chunk, wanted))
        columns = [pa.nulls(len(wanted), work.types[name]) for name in work.names]
        return pa.table(columns, names=work.names)


@dataclass(frozen=True)
class StagedChunks:
    """See `fold.chunk_keys.ChunkRows`."""

    session: TargetSession
    work: FoldInput
    server: ServerRows
    named: Ints | None = None
    """The words of the keys that something besides chunks concerns (`fold.concerned`); None: all rows count."""
    in_copy: set[str] = field(default_factory=set)
    """The paths of those that `check` has found in the copy itself, among the rows that its state covers."""

    def keys(self, chunk: ChunkRegistered) -> Iterator[tuple[Ints, Columns]]:
        decided = self._words(chunk)
        if chunk.path is None or (decided is not None and not len(decided)):
            return
        for positions, columns in self.stored_keys(chunk):
            if decided is None:
                yield positions, columns
            else:
                rows = np.flatnonzero(np.isin(words(columns), decided)).astype(np.int64)
                yield positions[rows], taken(columns, rows)

    def stored_keys(self, chunk: ChunkRegistered) -> Iterator[tuple[Ints, Columns]]:
        """All of them, and their positions."""
        wanted, at = self.key_names(chunk), 0
        for batch in _kept_keys(self.session, chunk.path):
            positions = np.arange(at, at + batch.num_rows, dtype=np.int64)
            at += batch.num_rows
            yield positions, typed((batch.column(name) for name in wanted), self.work.key_types)
        if not at:
            raise lost(chunk)

    def _words(self, chunk: ChunkRegistered) -> Ints | None:
        """The words of the keys that anything may decide besides this chunk; None: all of its rows may be decided."""
        part = self.work.slice
        others = (other for other in part.chunks if other is not chunk)
        if part.emptied_at(chunk) is not None or not all(disjoint(chunk, other) for other in others):
            return None
        return self.named

    def rows(self, chunk: ChunkRegistered, positions: Ints) -> Iterator[pa.Table]:
        yield self.server.add(self.work, chunk, positions)

    def check(self, chunks: Iterable[ChunkRegistered]) -> None:
        """`ChunkLost`: a crash of the server has emptied a staging table, or somebody dropped it. Called first."""
        for chunk in chunks:
            if chunk.path is None:
                continue
            if self.session.relation((SCHEMA, chunk.path)) is None:
                if not loaded.is_loaded(chunk.path) or not loaded.has(self.session, chunk.path):
                    raise lost(chunk)
                self.in_copy.add(chunk.path)
                continue
            if not self.session.rows(f"SELECT 1 FROM {SCHEMA}.{self.session.quote(chunk.path)} LIMIT 1"):
                raise lost(chunk)

    def selected(self, chunk: ChunkRegistered, given: Mapping[int, str] = MappingProxyType({})) -> str:
        """The chunk's values, one for each column of the target, as an expression list over its staging table `c`.
        `given`: other expressions, by the column's id."""
        version = {c.id: c.name for c in self.work.slice.versions[chunk.schema_version].columns}
        quote = self.session.quote
        schema = self.work.slice.schema
        known = {id_: f"c.{quote(name)}" for id_, name in version.items()} | dict(given)
        values = (known.get(c.id, "NULL") for c in schema.columns)
        kinds = (self.session.type_of(schema, c) for c in schema.columns)
        return ", ".join(map(self.session.cast, values, kinds))

    def key_names(self, chunk: ChunkRegistered) -> list[str]:
        """The key's columns as the staging table calls them."""
        version = {c.id: c.name for c in self.work.slice.versions[chunk.schema_version].columns}
        return [version[column.id] for column in self.work.slice.schema.key_columns]

    def key_list(self, chunk: ChunkRegistered) -> str:
        return list_of(self.session, self.key_names(chunk), "c.")


def lost(chunk: ChunkRegistered) -> ChunkLost:
    return ChunkLost(f"staging table {SCHEMA}.{chunk.path} is gone, or was emptied", "It is read again.", (chunk,))
