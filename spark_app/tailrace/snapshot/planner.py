"""The snapshots that there should be, decided from the journal's state: pure, no I/O, no clock.

Called by `reading.planning` in every round of the snapshot runner, and by the driver's control for requests. Snapshots
that Tailrace orders itself have ids derived from what calls for them, so that a restart, or a round that is repeated,
cannot plan one twice: the journal knows the id.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tailrace.changelog import triggers
from tailrace.changelog.records.snapshots import ChunkRegistered, SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.terms import Key, RecordNumber
from tailrace.changelog.state import LogState, SnapshotState, TableLog
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.resources import SnapshotRequest
from tailrace.contract.units import share
from tailrace.errors import RESYNC, InvalidManifest, privacy, with_fix
from tailrace.sources.patterns import matches

MAX_REPAIR_KEYS = 10_000
"""Holes read by one repair; the rest follows in the next."""
MANY_HOLES = 10 * MAX_REPAIR_KEYS
"""Holes that one table may have before it is read again as a whole."""
REPAIR_PAUSE = 100
"""Records between a repair that failed and the next; an idle journal has a few records a minute."""


STOPPED = "stopped by request"
NAMED = 20
"""Tables that one line of the log names."""


@dataclass(frozen=True)
class Holes:
    """The keys that a table lacked after it had applied record `applied_record`."""

    applied_record: RecordNumber
    keys: frozenset[Key]


def due_snapshots(
    state: LogState, holes: Mapping[int, Holes], tables: Iterable[TableLog] | None = None
) -> tuple[SnapshotPlanned, ...]:
    """The snapshots that the state calls for and the journal does not hold yet. `tables`: those that may call for one
    by themselves, because a record has changed them; None: all."""
    pending = [
        SnapshotPlanned(snapshot_id=call.snapshot_id, reason=call.reason, tables=(call.table_id,))
        for table in (state.tables.values() if tables is None else tables)
        for call in triggers.pending(state, table)
    ]
    repairs = (*_repairs(state, holes), *_not_compared(state))
    return (*pending, *(plan for plan in repairs if plan.snapshot_id not in state.snapshots))


def _live(state: LogState, table_ids: Iterable[int]) -> Iterator[TableLog]:
    known = filter(None, map(state.tables.get, table_ids))
    return (table for table in known if not table.removed and table.stopped is None)


def _not_compared(state: LogState) -> Iterator[SnapshotPlanned]:
    """Tables whose rows were taken over from another program and then not compared to the end are read as a whole."""
    for snapshot in state.snapshots.taking_over():
        plan = snapshot.plan
        for table in _live(state, plan.accepts):
            part = snapshot.tables.get(table.table_id)
            if part is None or table.read_record > snapshot.record:
                continue
            if snapshot.ended is not None if part.finished is None else part.finished.error is not None:
                name = f"{repair_prefix(plan.snapshot_id)}{table.table_id}-failed"
                yield SnapshotPlanned(snapshot_id=name, reason="repair", tables=(table.table_id,))


def due_verification(
    state: LogState, now: float, every: float, is_whole: Callable[[int], bool]
) -> SnapshotPlanned | None:
    """The verification that is to begin in the background at `now` (Unix time, seconds), if each table is verified once
    in `every` seconds: one at a time, begun at equal distances. Tables that are not whole are passed over until they
    are."""
    live = [t for t in state.tables.values() if not t.removed and t.stopped is None]
    if not live or any(s.plan.in_background for s in state.snapshots.open()):
        return None
    if now - max(t.verification_planned_at for t in live) / 1e6 < every / len(live):
        return None
    live = [t for t in live if t.schema.history != "Changes"]  # which claims nothing of the present
    due = (t for t in live if now - t.verification_planned_at / 1e6 >= every)
    for table in sorted(due, key=lambda t: (t.verification_planned_at, t.table_id)):
        if is_whole(table.table_id):
            name = f"verification-{table.table_id}-{state.number}"
            return SnapshotPlanned(snapshot_id=name, reason="verification", tables=(table.table_id,), verify=True)
    return None


def log_lines(state: LogState, plans: Iterable[SnapshotPlanned]) -> Iterator[str]:
    """A line for each reason: a first start plans a snapshot for each of, perhaps, thousands of tables."""
    by_reason: dict[str, list[str]] = {}
    for plan in plans:
        by_reason.setdefault(plan.reason, []).extend(state.tables[t].schema.name for t in plan.tables)
    for reason, names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"snapshot planned ({reason}): {', '.join(names[:NAMED])}{more}"


def replaced_chunks(state: LogState, table_id: int) -> frozenset[tuple[str, int]]:
    """The table's chunks (snapshot, ordinal) that a later snapshot makes up for."""
    return frozenset(pair for s in state.snapshots.of(table_id) for pair in s.plan.replaces)


def rereads_of_lost(state: LogState, lost: Iterable[ChunkRegistered]) -> tuple[SnapshotPlanned, ...]:
    """One for each table that lost chunk files: it is read again as a whole, since what the lost chunks' snapshots
    would have replaced must be replaced."""
    by_table: dict[int, set[tuple[str, int]]] = {}
    for chunk in lost:
        by_table.setdefault(chunk.table_id, set()).add((chunk.snapshot_id, chunk.chunk))
    return tuple(
        SnapshotPlanned(
            snapshot_id=f"lost-{table_id}-{state.number}", reason="repair", tables=(table_id,), replaces=tuple(new)
        )
        for table_id, pairs in by_table.items()
        if table_id in state.tables
        # What the target has passed by is made up for, whether or not the state remembers it.
        if (new := sorted(pairs & _unapplied(state.tables[table_id]) - replaced_chunks(state, table_id)))
    )


def still_needed(state: LogState, chunks: Iterable[ChunkRegistered]) -> list[ChunkRegistered]:
    """Those that some batch has yet to adopt: the others' tables are gone, or their targets have passed them by."""
    chunks = list(chunks)
    tables = [state.tables[table_id] for table_id in {c.table_id for c in chunks} & state.tables.keys()]
    needed = {(table.table_id, *pair) for table in tables for pair in _unapplied(table)}
    return [c for c in chunks if (c.table_id, c.snapshot_id, c.chunk) in needed]


def _unapplied(table: TableLog) -> set[tuple[str, int]]:
    """Chunks (snapshot, ordinal) that some batch still needs."""
    needed = [*table.chunks, *(chunk for finish in table.finishes for chunk in finish.chunks)]
    return {(logged.chunk.snapshot_id, logged.chunk.chunk) for logged in needed}


def _repairs(state: LogState, holes: Mapping[int, Holes]) -> Iterable[SnapshotPlanned]:
    """One at a time per table: its rows must be applied before what is still missing is known."""
    for table in _live(state, holes):
        found, under_way = holes[table.table_id], [s.plan for s in state.snapshots.of(table.table_id) if s.is_open]
        if not found.keys or any(plan.reason == "repair" for plan in under_way):
            continue
        if any(chunk.record > found.applied_record for chunk in table.chunks) or failed_lately(state, table):
            continue
        whole = len(found.keys) > MANY_HOLES and not any(plan.whole for plan in under_way)
        yield SnapshotPlanned(
            snapshot_id=f"repair-{table.table_id}-{state.number}",
            reason="repair",
            tables=(table.table_id,),
            keys=None if whole else _some(found.keys, state.number),
        )


def _some(keys: frozenset[Key], record: RecordNumber) -> tuple[Key, ...]:
    """Neighbours, from another place each time: rows that change all the time are holes again in the next repair, and
    would keep it from those behind them."""
    if len(keys) <= MAX_REPAIR_KEYS:
        return tuple(sorted(keys))
    first = Random(record).randrange(len(keys))
    around = sorted(keys)
    return tuple((around[first:] + around[:first])[:MAX_REPAIR_KEYS])


def failed_lately(state: LogState, table: TableLog) -> bool:
    """A repair that failed is not ordered again at once, or every step would plan one. Those from before the table
    came back, which end with that, do not count."""
    since = max(state.number - REPAIR_PAUSE, table.added_record)
    return any(
        s.ended is not None and s.ended.outcome == "failed" and s.record > since
        for s in state.snapshots.of(table.table_id)
        if s.plan.reason == "repair"
    )


CanonicalKeys = Callable[[TableLog, Sequence[Key]], tuple[Key, ...]]
"""A table's keys as the change log writes them (`changelog.keys`), of what a user wrote. `InvalidManifest`: one is no
key of the table."""


def request_plan(
    state: LogState,
    snapshot_id: str,
    body: SnapshotBody,
    canonical_keys: CanonicalKeys,
    changed: Collection[int] = (),
) -> SnapshotPlanned:
    """The plan for a SnapshotRequest; raises `InvalidManifest` when no table matches. `changed`: tables that are
    stopped because another program changed their rows."""
    captured = [t for t in state.tables.values() if not t.removed]
    tables = [t for t in captured if _asked(t, body.spec.tables)]
    # Each of them: a name that is misspelt beside others would pass for one that was read.
    unmet = [pattern for pattern in body.spec.tables if not any(_asked(t, (pattern,)) for t in tables)]
    if unmet:
        known = ", ".join(sorted(t.schema.name for t in captured)[:20]) or "none"
        raise InvalidManifest(
            f"no captured table matches {', '.join(unmet)} (captured: {known})", "Correct the patterns."
        )
    if not body.spec.resync and all(t.stopped is not None for t in tables):
        names = ", ".join(sorted(t.schema.name for t in tables)[:NAMED])
        raise InvalidManifest(
            f"stopped: {names}; a snapshot does not make a stopped table follow its changes again",
            f"Remove the cause, see the status; then {RESYNC}.",
        )
    keys = body.spec.keys
    keyless = next((t.schema.name for t in tables if t.schema.keyless), None)
    if keyless is not None and (keys is not None or body.spec.where is not None or body.spec.sample is not None):
        raise InvalidManifest(
            f"{keyless} has no key, so it is read as a whole only",
            "Ask for it without where, keys and sample, or name only tables with a key.",
        )
    if body.spec.mode in ("Verify", "Repair"):
        tables = _comparable(tables, body, changed)
    if keys is not None:
        _check_keys(tables, keys)
        keys = canonical_keys(tables[0], keys)
    plan = _plan_of(snapshot_id, body, tuple(t.table_id for t in sorted(tables, key=lambda t: t.schema.name)), keys)
    all_rows = plan.repair and plan.keys is None and plan.sample is None and plan.where is None
    return plan.model_copy(update={"accepts": tuple(i for i in plan.tables if i in changed)}) if all_rows else plan


def _comparable(tables: list[TableLog], body: SnapshotBody, changed: Collection[int]) -> list[TableLog]:
    """The tables without those that cannot be compared, which only a pattern may match."""
    refused = dict[str, InvalidManifest]()
    for table in tables:
        name, history = table.schema.name, table.schema.history
        if history == "Changes":
            refused[name] = InvalidManifest(
                f"the copy of {name} has a row for each change (options[].history) and is not compared with its source",
                "Name only tables with another history.",
            )
        elif history is not None and body.spec.mode == "Repair" and table.table_id in changed:
            refused[name] = InvalidManifest(
                f"another program changed the copy of {name}, which has rows that its source no longer has"
                f" (options[].history): these cannot be compared",
                "Stop Tailrace, put the copy back to its version before that change, and start it again.",
            )
    left = [table for table in tables if table.schema.name not in refused]
    if refused and (not left or refused.keys() & set(body.spec.tables)):
        raise next((refused[name] for name in refused if name in body.spec.tables), next(iter(refused.values())))
    return left


def stopped_unplanned(snapshot_id: str, body: SnapshotBody) -> tuple[SnapshotPlanned, SnapshotEnded]:
    """The plan and the end of a request that is stopped before it was planned, and that would be repeated: it was made,
    and has ended."""
    plan = _plan_of(snapshot_id, body, (), None if body.spec.keys is None else ())
    return plan, SnapshotEnded(snapshot_id=snapshot_id, outcome="stopped", message=STOPPED)


def is_plan_of(known: SnapshotState, snapshot_id: str, body: SnapshotBody) -> bool:
    """True if this was the request. Tables that match may have come and gone since; what was asked counts."""
    asked = _plan_of(snapshot_id, body, known.plan.tables, known.plan.keys)
    return known.plan == asked.model_copy(update={"accepts": known.plan.accepts})


def _plan_of(
    snapshot_id: str, body: SnapshotBody, tables: tuple[int, ...], keys: tuple[Key, ...] | None
) -> SnapshotPlanned:
    return SnapshotPlanned(
        snapshot_id=snapshot_id,
        request=body.name,
        reason="request",
        tables=tables,
        where=body.spec.where,
        keys=keys,
        keys_digest=None if body.spec.keys is None else _digest(body.spec.keys),
        chunk_rows=body.spec.chunk_rows,
        parallelism=body.spec.parallelism,
        resync=body.spec.resync,
        verify=body.spec.mode != "Read",
        repair=body.spec.mode == "Repair",
        sample=None if body.spec.sample is None else share(body.spec.sample),
    )


def _digest(keys: Iterable[Key]) -> str:
    return hashlib.sha256(json.dumps([list(key) for key in keys]).encode()).hexdigest()


def _asked(table: TableLog, patterns: Iterable[str]) -> bool:
    return any(matches(pattern, table.schema.schema_name, table.schema.table_name) for pattern in patterns)


def _check_keys(tables: Sequence[TableLog], keys: Iterable[Key]) -> None:
    if len(tables) != 1:
        raise InvalidManifest(f"keys goes with one table, {len(tables)} match", "Name the table without wildcards.")
    columns = [c.name for c in tables[0].schema.key_columns]
    for key in keys:
        if len(key) != len(columns):
            raise InvalidManifest(
                f"the key {privacy.key(key)} has {len(key)} values; the key of {tables[0].schema.name} is"
                f" ({', '.join(columns)})",
                "Give one value for each key column.",
            )


def request_id(request: SnapshotRequest) -> str:
    """Outside Kubernetes a request is known by its name and what it asks for: the same file, read again, is the same
    request; a changed one is a new snapshot."""
    if request.metadata.uid is not None:
        return request.metadata.uid
    # A field that is not used is left out, or requests from before it existed would be new ones.
    later = ("resync", "mode", "sample", "rewind")
    unused = {name for name in later if getattr(request.spec, name) in (False, "Read", None)}
    spec = request.spec.model_copy(update={"suspend": False}).model_dump_json(exclude=unused)
    return f"{request.metadata.name}-{hashlib.sha256(spec.encode()).hexdigest()[:12]}"


def repair_prefix(snapshot_id: str) -> str:
    """The beginning of the ids of the snapshots that read again what a verification has found."""
    return f"repair-{snapshot_id}-"


def endings(state: LogState, snapshots: Iterable[SnapshotState] | None = None) -> tuple[SnapshotEnded, ...]:
    """Snapshots whose last table is finished and that lack their end record; and re-reads that newer ones make up for.
    `snapshots`: those that records have changed; None: all."""
    among = list(state.snapshots.open() if snapshots is None else snapshots)
    events = [*_superseded(state, among)]
    for snapshot in filter(_is_carried_out, among):
        finished = [t.finished for t in snapshot.tables.values()]
        failed = [f.error for f in finished if f is not None and f.error is not None]
        events.append(
            SnapshotEnded(
                snapshot_id=snapshot.plan.snapshot_id,
                outcome="failed" if failed else "completed",
                message=with_fix(failed[0].message, failed[0].fix) if failed else "",
            )
        )
    return tuple(events)


def unwanted(snapshots: Iterable[SnapshotState]) -> Iterator[SnapshotEnded]:
    """Verifications in the background among these, where `spec.verify` no longer calls for any."""
    for snapshot in snapshots:
        if snapshot.plan.in_background and snapshot.is_open:
            name = snapshot.plan.snapshot_id
            yield SnapshotEnded(snapshot_id=name, outcome="stopped", message="spec.verify was removed")


def _superseded(state: LogState, among: Iterable[SnapshotState]) -> Iterator[SnapshotEnded]:
    """Tables may be rewritten faster than they are read. Of a table's re-reads the newest covers all; the oldest goes
    on once it has begun, or a table that is rewritten all the time would never be read to the end."""
    for table_id in dict.fromkeys(s.plan.tables[0] for s in among if _is_reread(s)):
        rereads = [s for s in state.snapshots.of(table_id) if s.is_open and _is_reread(s)]
        several = sorted(rereads, key=lambda s: s.record)
        older = several[:-1]
        if older and older[0].tables[table_id].started:
            del older[0]
        for snapshot in older:
            if snapshot.tables[table_id].finished is None:
                message = f"superseded by {several[-1].plan.snapshot_id}"
                yield SnapshotEnded(snapshot_id=snapshot.plan.snapshot_id, outcome="stopped", message=message)


def _is_reread(snapshot: SnapshotState) -> bool:
    return snapshot.plan.reason == "schema" and snapshot.plan.request is None


def _is_carried_out(snapshot: SnapshotState) -> bool:
    """True if only its end is to be recorded."""
    finished = all(table.finished for table in snapshot.tables.values())
    return finished and snapshot.is_open and snapshot.plan.rewind is None


WHOLE_BYTES = 48 << 20
"""A file of this size is not joined with others by compaction, whatever its rows compress to later."""
PATIENCE = 3
"""How many times the wanted seconds a chunk may take to make such a file: on a slow machine the whole table would be
written a second time."""


MOST_COMPARED = 250_000
"""Rows of a chunk that is compared: it is held in memory, and the target's rows beside it."""


SAMPLED = 20
"""Ranges that a sample is made of, roughly."""


def sample_rows(estimated: int) -> int:
    """The rows of each range, if about `estimated` rows are compared."""
    return min(max(estimated // SAMPLED, 1_000), MOST_COMPARED)


def next_chunk_rows(fixed: int | None, rows: int, size: int, last_seconds: float, aim_seconds: float) -> int:
    """The number of rows for the next chunk, after one of `rows` rows of the table, of which `size` bytes were written,
    that took `last_seconds`. Grows and shrinks by a factor of four at most, so that one odd measurement does not do
    harm."""
    if fixed is not None:
        return fixed
    ideal = rows * aim_seconds / max(last_seconds, 0.001)
    ideal = min(max(ideal, rows * WHOLE_BYTES / max(size, 1)), PATIENCE * ideal)
    return int(min(max(ideal, rows / 4, 1_000), rows * 4, 2_000_000))


def shared_chunk_rows(rows: int, left: int, readers: int) -> int:
    """The number of rows for the next chunk, of `rows` at most, where about `left` rows are not in any chunk yet: the
    last chunks of a large table are smaller, so that its readers end at about the same time. Never less than a quarter:
    the estimate may be far too low. It was, if more rows are in chunks than it said."""
    if left <= 0:
        return rows
    return max(min(rows, left // (2 * readers)), rows // 4, min(rows, LEAST_SHARED_ROWS))


LEAST_SHARED_ROWS = 100_000
"""A chunk with fewer rows is not worth its fixed costs."""


FIRST_CHUNK_ROWS = 20_000
"""Before anything is measured."""
