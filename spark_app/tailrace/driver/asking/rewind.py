"""`tailrace rewind`: the tables of a lake go back to a cut while the driver is stopped; the next start replays the log.

    cut ──> each table's kept version, examined ──> restored, one table after the other

The applied state is in the version, so nothing else has to know: the journal and the position in the source stay where
they are. Nothing is touched before every table has been examined. Dying between two tables leaves some rewound and some
not; the command, repeated, passes over the former.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.batch.applied import AppliedState, Generation
from tailrace.capture.admission import check_manifest
from tailrace.changelog.history import stored
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.logged import LoggedCut, TableLog
from tailrace.changelog.records.snapshots import PlannedRewind
from tailrace.changelog.state import LogState
from tailrace.contract.resources import Replicator, RewindSpec
from tailrace.contract.units import seconds
from tailrace.errors import InvalidManifest, RewindRefused
from tailrace.places import Places
from tailrace.seams import seam
from tailrace.sources.patterns import matches
from tailrace.spark.on_demand import on_demand
from tailrace.targets.api import FormerVersion, Opening, Rewinding, Runtime

OTHERS = "`tailrace cuts` of a running driver shows all, and its answer says which tables each has."
NAMED = 10
"""Tables that a refusal names."""


@dataclass(frozen=True)
class WantedCut:
    """The moment that is wanted; one of the fields."""

    cut: str | None = None
    time: datetime | None = None
    """With a zone."""
    record: int | None = None

    @classmethod
    def of(cls, spec: RewindSpec) -> "WantedCut":
        at = None if spec.to_time is None else datetime.fromisoformat(spec.to_time)
        return cls(spec.to_cut, at, spec.to_record)

    @property
    def text(self) -> str:
        if self.cut is not None:
            return f"cut {self.cut}"
        return f"record {self.record}" if self.time is None else f"time {self.time.isoformat()}"


@dataclass(frozen=True)
class Rewound:
    table: str
    version: int
    already: bool
    """It was there."""
    table_id: int
    applied: AppliedState
    """The state that it has now."""


@contextmanager
def session_of(places: Places, run_dir: Path) -> Iterator[Callable[[], SparkSession]]:
    """A session that is started when it is first asked for, and ended."""
    spark = on_demand(lambda: places.spec, places.target, run_dir, run_dir / "spark.log")
    try:
        yield spark.session
    finally:
        spark.stop()


def rewind(
    replicator: Replicator,
    places: Places,
    spark: Callable[[], SparkSession],
    moment: WantedCut,
    patterns: Sequence[str],
) -> Iterator[PlannedRewind | Rewound]:
    """Yields the rewind once all tables have been examined, then each table. The run directory is locked by the
    caller."""
    require_lake(places)
    storage = places.storage
    state = JournalReader.open(storage).state
    if state.origin is None:
        raise InvalidManifest(
            f"there is no change log at {storage.root}",
            "Correct storage.location (in Kubernetes it cannot change: take the manifest of that Replicator).",
        )
    if not state.released:
        check_manifest(replicator, storage.root, state.owner)
    cut = choose(state, moment)
    tables = versions_at(state, cut, patterns)
    kept = seconds(replicator.spec.retention.time)
    ids = tuple(table.table_id for table, _ in tables)
    planned = PlannedRewind(cut=cut.name, record=cut.record, asked=moment.text, tables=ids)
    for done in restore(state, cut, tables, _rewinding(places, spark), kept):
        yield done if isinstance(done, Rewound) else planned


def require_lake(places: Places) -> None:
    if places.spec.target.is_database:
        raise RewindRefused(
            f"the target is a database ({places.target.place}), which keeps no former versions of its tables",
            "Restore a backup of the database together with the schema _tailrace in it, or read the tables again:"
            " `tailrace resync`, in Kubernetes a SnapshotRequest with resync: true.",
        )


def choose(state: LogState, moment: WantedCut) -> LoggedCut:
    cuts = list(state.cuts.values())
    if not cuts:
        raise RewindRefused("there is no cut", "Make cuts while the driver runs: `tailrace cut`, or spec.cuts.")
    few = ", ".join(f"{cut.name} (record {cut.record})" for cut in cuts[-5:])
    if moment.cut is not None:
        found, what = [cut for cut in cuts if cut.name == moment.cut], f"cut {moment.cut!r}"
    elif moment.record is not None:
        found, what = [cut for cut in cuts if cut.record == moment.record], f"cut at record {moment.record}"
    else:
        assert moment.time is not None
        until = moment.time.timestamp() * 1e6
        known = [cut for cut in cuts if cut.commit_time is not None and cut.commit_time <= until]
        found, what = sorted(known, key=lambda cut: cut.record), f"cut at or before {moment.time.isoformat()}"
    if not found:
        raise RewindRefused(f"there is no {what}", f"The newest are {few}; {OTHERS}")
    return found[-1]


def versions_at(state: LogState, cut: LoggedCut, patterns: Sequence[str]) -> list[tuple[TableLog, int]]:
    """The tables with their versions; every one that the patterns name must be in the cut."""
    names = {i: (t.schema.schema_name, t.schema.table_name) for i, t in state.tables.items() if not t.removed}
    for pattern in patterns:
        if not any(matches(pattern, *name) for name in names.values()):
            raise RewindRefused(f"no captured table matches {pattern}", "Correct --tables.")
    chosen = [i for i, name in names.items() if any(matches(p, *name) for p in patterns)]
    return versions_of(state, cut, chosen)


def versions_of(state: LogState, cut: LoggedCut, table_ids: Iterable[int]) -> list[tuple[TableLog, int]]:
    """The tables, by name, with their versions."""
    found, lacking = [], []
    for table in sorted((state.tables[i] for i in table_ids), key=lambda table: table.schema.name):
        version, why = cut.versions.get(table.table_id), _lack(table, cut)
        if version is None or why is not None:
            lacking.append(f"{table.schema.name} cannot go back to cut {cut.name}: {why or 'it has no version of it'}")
        else:
            found.append((table, version))
    if lacking:
        others = " ".join(table.schema.name for table, _ in found[:NAMED])
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise RewindRefused(
            "; ".join(lacking[:NAMED]),
            "Choose another cut"
            + (f", or only the other tables: `--tables {others}`{more}" if found else "")
            + "; `tailrace resync` (in Kubernetes a SnapshotRequest with resync: true) reads a table again.",
        )
    return found


def _lack(table: TableLog, cut: LoggedCut) -> str | None:
    """The reason why the table is not in the cut, by the log alone."""
    if table.removed:
        return "it is no longer captured"
    if table.stopped is not None:
        return f"it is stopped ({table.stopped.error})"
    if table.added_record > cut.record:
        return "it was added, or started over, later"
    if table.table_id in cut.awaited:
        return "it had not come to the cut when the driver was stopped"
    return cut.without.get(table.table_id)


def restore(
    state: LogState, cut: LoggedCut, tables: Sequence[tuple[TableLog, int]], rewinding: Rewinding, retention: float
) -> Iterator[LoggedCut | Rewound]:
    oldest = int((time.time() - retention) * 1e6)
    found = list[tuple[TableLog, int, FormerVersion]]()
    for table, version in tables:
        former = _former(state, table, version, rewinding)
        if not is_there(former):
            require_replay(table, cut, former, oldest)
        found.append((table, version, former))
    yield cut
    for table, version, former in found:
        already = is_there(former)
        if not already:
            former.restore()
            # Dying here leaves some tables rewound: the command, repeated, finds them so.
            seam("rewind.after-table")
        yield Rewound(table.schema.name, version, already, table.table_id, former.former)


def are_back(state: LogState, cut: LoggedCut, tables: Sequence[tuple[TableLog, int]], rewinding: Rewinding) -> bool:
    """True if all of them are there; touches none."""
    return all(is_there(_former(state, table, version, rewinding)) for table, version in tables)


def _former(state: LogState, table: TableLog, version: int, rewinding: Rewinding) -> FormerVersion:
    assert state.origin is not None
    generation = Generation(table.generation, table.begin_seq, keeps=not table.must_hide)
    return rewinding.find(Opening(stored(table.schemas[0].table), generation), state.origin.log_id, version)


def is_there(found: FormerVersion) -> bool:
    """True if readers see the version's rows: nothing was applied since, or the table has gone back to it. A table that
    has gone back to an earlier cut is not there."""
    present, former = found.present, found.former
    return (present.applied_record, present.applied_seq) == (former.applied_record, former.applied_seq)


def require_replay(table: TableLog, cut: LoggedCut, found: FormerVersion, oldest: int) -> None:
    """Everything after the version must still be in the log, and stay: the next start removes what was written before
    `oldest` (microseconds since the Unix epoch) and was applied, as far as the journal knows."""
    former, name = found.former, table.schema.name
    ends = [*table.segments.ends(), *((t.seq, t.written_at) for t in table.truncates)]
    if table.trimmed_through > former.applied_seq:
        why = f"its changes up to sequence {table.trimmed_through} are no longer in the log"
        fix = "Keep the log for longer (spec.retention.time) to go back further."
    elif any(seq > former.applied_seq and written_at < oldest for seq, written_at in ends):
        why = "its changes since are older than spec.retention.time, so the next start may remove them from the log"
        fix = "Set spec.retention.time longer than that."
    elif table.trimmed_record > former.applied_record:
        why = f"rows of a snapshot were applied after it (record {table.trimmed_record}), which the log no longer has"
        fix = "A moment after the snapshot can be gone back to."
    elif former.gap is not None or former.holes:
        why, fix = "not all of its rows were whole then", "Rows that were withheld are read again only once."
    else:
        return
    raise RewindRefused(f"{name} cannot go back to cut {cut.name}: {why}", f"{fix} Choose a later cut.")


def _rewinding(places: Places, spark: Callable[[], SparkSession]) -> Rewinding:
    run = Runtime(places.storage, lambda: None, spark, places.spec.source.type)
    rewinding = places.target.rewinding(run)
    assert rewinding is not None, "a lake keeps versions"
    return rewinding
