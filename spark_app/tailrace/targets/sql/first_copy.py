"""The key of a copy whose rows are read for the first time: built at the end, where a server can do so in the
transaction of a batch. Row by row, the key would cost it about as much as the rows. Called by `sql.unit`.

A copy without a key has the rows of disjoint ranges of one reading and nothing else, so none of the rows that it gets
is there already. The key is built before anything else comes: a change, a range that was read again, the snapshot's
end. Which ranges the copy has is known to the process that brought them; any other one that finds a copy without a key
builds it. So dying at any moment is safe: with or without its key, the copy is what its state says, once the rows have
left it that executors had loaded for batches to come (`sql.loaded`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import TableSchema
from tailrace.fold.concerned import disjoint
from tailrace.targets.sql import loaded, unloading
from tailrace.targets.sql.columns import is_unique
from tailrace.targets.sql.session import TargetSession
from tailrace.targets.sql.state import StoredCopy

MOST_CHUNKS = 1000
"""The most chunks of one: each new one is compared with all of them."""


Form = Callable[[], str]
"""Tells the form of a batch's rows (`staged.form_of`)."""


@dataclass
class CopyKey:
    """The key of a copy as this process knows it."""

    looked: bool = False
    """False: the copy may have no key."""
    loaded: tuple[ChunkRegistered, ...] | None = None
    """The chunks whose rows a copy without a key has; None: it has its key."""
    form: str = ""
    """The form of rows that executors may load into it."""
    closed: bool = False
    """Executors load nothing into it, and of what they had loaded it has only what its state covers."""

    @property
    def is_there(self) -> bool:
        return self.looked and self.loaded is None

    def withdraws(self, part: TableSlice, form: Form) -> bool:
        """True if executors are not to begin to load rows, which this process had permitted, before this batch."""
        return self.loaded is not None and not self.closed and not self._appends(part, form)

    def prepare(self, session: TargetSession, copy: StoredCopy, part: TableSlice, form: Form) -> None:
        """Called before a batch changes the copy in any way, also its columns: rows that are written again can no
        longer be told apart."""
        if self.loaded is not None and not self._appends(part, form):
            self.looked, self.loaded = False, None
        if self.loaded is None:
            self._close(session, copy)

    def _close(self, session: TargetSession, copy: StoredCopy) -> None:
        if not self.closed:
            unloading.end(session, copy)
            self.closed = True

    def appends(self, session: TargetSession, copy: StoredCopy, part: TableSlice, form: Form) -> bool:
        """Called before a batch. True: it appends rows to a copy that has no key; else the copy has its key now."""
        keys = session.late_keys
        if keys is None or not is_unique(part.schema):
            return False
        ranges = _ranges(part)
        if not self.looked:
            self.build(session, copy, part.schema)
            # With the snapshot's end in the same batch nothing is gained, and what it does may need the key.
            if ranges and part.repair and not part.finished and keys.drop(copy.where, _names(part.schema)):
                self.loaded, self.form, self.closed = (), form(), False
                loaded.permit(session, loaded.Loads(copy.relation, self.form, ranges[0].snapshot_id))
        if self.loaded is None:
            return False
        self.loaded += ranges
        loaded.take(session, copy.relation, [str(chunk.path) for chunk in ranges if loaded.is_loaded(chunk.path)])
        if part.finished:
            self._close(session, copy)
        elif not _are_few(self.loaded):
            loaded.withdraw(session, copy.relation)
        return True

    def _appends(self, part: TableSlice, form: Form) -> bool:
        ranges, known = _ranges(part), self.loaded or ()
        # What is loaded already is taken also where it is a little more.
        room = _are_few((*known, *ranges)) or any(loaded.is_loaded(chunk.path) for chunk in ranges)
        apart = all(disjoint(one, other) for one, other in product(known, ranges))
        return bool(ranges) and room and apart and form() == self.form

    def build(self, session: TargetSession, copy: StoredCopy, schema: TableSchema) -> None:
        """Build the key if it is missing. If somebody reads the table, that is tried again before the next batch: until
        then batches find rows without it."""
        keys, built, key = session.late_keys, True, _names(schema)
        if not self.is_there and keys is not None and is_unique(schema):
            self._close(session, copy)
            if keys.lacks(copy.where, key):
                built = keys.build(copy.where, key)
        self.looked, self.loaded = built, None


def _are_few(chunks: Sequence[ChunkRegistered]) -> bool:
    return len(chunks) <= MOST_CHUNKS and sum(chunk.rows for chunk in chunks) <= loaded.MOST_ROWS


def _ranges(part: TableSlice) -> tuple[ChunkRegistered, ...]:
    """The chunks of a batch that has nothing but ranges of one reading, none of which concerns another; empty: it has
    something else."""
    others = part.schema.history is not None or part.segments or part.clear or part.applied.holes
    if others or any(chunk.keys is not None or part.emptied_at(chunk) is not None for chunk in part.chunks):
        return ()
    return part.chunks if all(disjoint(one, other) for one, other in combinations(part.chunks, 2)) else ()


def _names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.key_columns]
