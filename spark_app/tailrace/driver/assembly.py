"""Makes the driver's parts that need the change log: applier, planner and stream, and those that answer requests.

Called by `driver.driver`, which runs them and shuts them down. Nothing here runs by itself.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from tailrace.apply.applier import Applier
from tailrace.apply.freshness import Freshness
from tailrace.apply.progress import Progress
from tailrace.apply.stream import ApplyStream
from tailrace.apply.unit_worker import UnitWorker
from tailrace.capture.client import CaptureClient
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import DroppedTable, LogState
from tailrace.contract.pace import AT_ONCE, Pace
from tailrace.contract.units import seconds, size
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.driver.asking.rewind_notes import RewindNotes
from tailrace.driver.asking.rewind_requests import RewindRequests
from tailrace.driver.launch import claimed
from tailrace.driver.process.ownership import Ownership
from tailrace.driver.process.run_dir import RunFolder
from tailrace.places import Places
from tailrace.reading.executors import ChunkExecutors, room_meanwhile
from tailrace.reading.runner import SnapshotRunner
from tailrace.reading.steps import Tools
from tailrace.removal.dropped import DroppedCopies
from tailrace.sources.api import Source
from tailrace.spark.on_demand import OnDemand
from tailrace.targets.api import Runtime

RECORD_SECONDS = 60.0
"""Seconds within which capture must record a request."""
SCRATCH_SHARE = 4
"""A target may use a quarter of the driver's scratch space, which Spark needs, too."""


@dataclass(frozen=True)
class DriverParts:
    """The parts that run while the driver runs."""

    applier: Applier
    runner: SnapshotRunner
    stream: ApplyStream
    journal: SharedJournal
    dropped: DroppedCopies
    cuts: CutKeeper
    rewinds: RewindRequests
    freshness: Freshness | None = None
    """None: a short run measures nothing."""


def parts(
    live: LiveSpec,
    folder: RunFolder,
    progress: Progress,
    places: Places,
    *,
    spark: OnDemand,
    journal: SharedJournal,
    pace: Callable[[], Pace],
    stop_at: RecordNumber | None = None,
) -> DriverParts:
    """All that needs the journal, and the session at times. What of the spec may change while they work, they ask
    `live` for."""
    making = _Assembly(live, folder, progress, places, spark, journal, pace)
    freshness = None if pace() is AT_ONCE else Freshness(places.storage, time.time())
    applier = making.applier(freshness, stop_at)
    runner = making.runner(applier)
    return DriverParts(
        applier,
        runner,
        ApplyStream(spark.session, folder.checkpoint, apply=lambda: applier.offer(journal.state.number)),
        journal,
        making.dropped(applier, runner),
        making.cuts(),
        making.rewinds(applier),
        freshness,
    )


@dataclass(frozen=True)
class _Assembly:
    """Makes the parts, out of what all of them share."""

    live: LiveSpec
    folder: RunFolder
    progress: Progress
    places: Places
    spark: OnDemand
    journal: SharedJournal
    pace: Callable[[], Pace]

    def applier(self, freshness: Freshness | None, stop_at: RecordNumber | None) -> Applier:
        limits, units = self.places.target.limits, self.places.target.units(self._runtime)
        group = units.group()
        return Applier(
            self.journal,
            self.progress,
            lambda _: UnitWorker(units.alone(), self.progress, limits, freshness),
            group=None if group is None else UnitWorker(group, self.progress, limits, freshness),
            retry_seconds=self._retry_seconds,
            pace=lambda times: self.pace().for_commits(times.longest, times.together),
            until=stop_at,
        )

    def runner(self, applier: Applier) -> SnapshotRunner:
        live, spark = self.live, self.spark
        tools = Tools(
            anywhere=self.places.source,
            options=lambda: live.spec.read_options,
            socket=self.folder.socket,
            executors=ChunkExecutors(
                spark.session,
                lambda: spark.started() is not None,
                spark.begin,
                room_meanwhile(live.spec.driver.beside_jvm),
            ),
            journal=self.journal,
            writers=applier.chunk_writer,
            lost=applier.lost_chunks,
            is_whole=applier.is_whole,
            look=applier.look,
            opened=lambda table_id: not live.spec.apply.suspend and applier.is_open(table_id),
        )
        return SnapshotRunner(
            tools,
            self.progress,
            lambda: live.spec.snapshot,
            retry_seconds=self._retry_seconds,
            background=lambda: None if self.pace() is AT_ONCE else live.spec.verify,  # `--once` waits for none
        )

    def dropped(self, applier: Applier, runner: SnapshotRunner) -> DroppedCopies:
        return DroppedCopies(
            self.journal,
            self._capture(),
            lambda: self.places.target.removal(self.spark.session),
            self._ownership.check,
            spec=lambda: self.live.spec,
            is_done_with=lambda table: applier.is_done_with(table.place) and not _reads(runner, table),
        )

    def cuts(self) -> CutKeeper:
        return CutKeeper(
            self.journal,
            self._capture(),
            self.progress,
            self.places.target,
            text=lambda at: bound(self.places.source, self.journal.state).text(at),
            spec=lambda: self.live.spec.cuts,
        )

    def rewinds(self, applier: Applier) -> RewindRequests:
        return RewindRequests(
            self.journal,
            self._capture(),
            applier,
            self.progress,
            places=self.places,
            rewinding=lambda: self.places.target.rewinding(self._runtime),
            spec=lambda: self.live.spec,
            notes=RewindNotes(self.folder.path),
        )

    @cached_property
    def _runtime(self) -> Runtime:
        return Runtime(
            self.places.storage,
            self._ownership.check,
            self._session_for_changes,
            self.live.spec.source.type,
            self.places.require_other_database,
            self.folder.path / "target",
            size(self.live.spec.driver.scratch) // SCRATCH_SHARE,
            self.spark.jvm,
        )

    def _session_for_changes(self) -> SparkSession:
        """The session, for jobs of the calling thread that are the changes'."""
        session = self.spark.session()
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        return session

    @cached_property
    def _ownership(self) -> Ownership:
        return Ownership(self.journal, lambda: claimed(self.folder.socket))

    def _capture(self) -> CaptureClient:
        return CaptureClient(self.folder.socket, timeout=RECORD_SECONDS)

    def _retry_seconds(self) -> float:
        return seconds(self.live.spec.retry.time)


def bound(source: Source, state: LogState) -> Source:
    """The source as the change log knows it now."""
    assert state.origin is not None, "there is a journal from record 0 on, which holds it"
    return source.bound_to(state.origin)


def _reads(runner: SnapshotRunner, table: DroppedTable) -> bool:
    """True if chunks of the table are still being read, and written beside its copy."""
    return any(run.reading for (_, table_id), run in runner.runs.items() if table_id in table.table_ids)
