"""Tables of a lake that go back to cuts: all of Tailrace in one process, over a database in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typing_extensions import override

from demo.compare import READERS
from support.pipeline import Pipeline, lake
from support.scripted_database import Database
from support.scripted_runs import Copy, by_key, manifest
from tailrace.changelog.records.snapshots import PlannedRewind
from tailrace.contract.resources import Replicator, ReplicatorSpec
from tailrace.driver.asking import rewind as rewinding
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.rewind import Rewound, WantedCut
from tailrace.driver.asking.rewind_notes import RewindNotes
from tailrace.driver.asking.rewind_requests import RewindRequests
from tailrace.places import Places
from tailrace.targets.api import Runtime
from tailrace.targets.lake.model import always

Rows = dict[int, str | None]


class Rewindable(Copy):
    """Real tables."""

    def __init__(self, database: Database, folder: Path, format: str, spark: SparkSession) -> None:
        tables = lake(Replicator.model_validate(manifest(folder, format)), spark)
        super().__init__(database, folder, format, tables)
        self.format, self.spark = format, spark
        self.held: dict[str, list[Rows]] = {}
        """What the source held at each cut."""

    def cut(self, name: str) -> None:
        """Made and held, of what the source holds now."""
        self.level()
        made = keeper(self)
        made.make(name)
        self.held[name] = self.source_rows()
        await_cut(self, made, name)

    def requests(self) -> RewindRequests:
        return requests_of(self, self.spark)

    def source_rows(self) -> list[Rows]:
        return [self.database.rows(number) for number in range(1, len(self.database.names) + 1)]

    @override
    def rows(self, table: int) -> Rows:
        """As a reader that is not ours sees them."""
        return by_key(READERS[self.format](self.place(table)).select(["id", "v"]))

    def place(self, table: int) -> Path:
        return self.folder / "lake" / "main" / self.database.names[table - 1]

    def copied_rows(self) -> list[Rows]:
        return [self.rows(number) for number in range(1, len(self.database.names) + 1)]

    def rewind(self, *patterns: str, **moment: Any) -> Iterator[PlannedRewind | Rewound]:
        """As the command does it, with the session of the tests."""
        return rewound(self, lambda: self.spark, *patterns, **moment)


def rewound(
    pipeline: Pipeline, spark: Callable[[], SparkSession], *patterns: str, **moment: Any
) -> Iterator[PlannedRewind | Rewound]:
    replicator = pipeline.replicator
    return rewinding.rewind(replicator, Places(replicator.spec), spark, WantedCut(**moment), patterns or ("*.*",))


def requests_of(pipeline: Pipeline, spark: SparkSession) -> RewindRequests:
    """Those of the running driver."""
    driver, replicator = pipeline.driver, pipeline.replicator
    places, run = Places(replicator.spec), Runtime(pipeline.storage, always, lambda: spark, "memory")

    def spec() -> ReplicatorSpec:
        apply = replicator.spec.apply.model_copy(update={"suspend": driver.control.suspended})
        return replicator.spec.model_copy(update={"apply": apply})

    made = driver.control.rewinds = RewindRequests(
        driver.journal,
        driver.client,
        driver.applier,
        driver.progress,
        places=places,
        rewinding=lambda: places.target.rewinding(run),
        spec=spec,
        notes=RewindNotes(pipeline.folder / "run"),
    )
    return made


def keeper(pipeline: Pipeline) -> CutKeeper:
    driver, target = pipeline.driver, Places(pipeline.replicator.spec).target
    return CutKeeper(driver.journal, driver.client, driver.progress, target, text=str)


def await_cut(pipeline: Pipeline, made: CutKeeper, name: str) -> None:
    while any(cut.waits for cut in made.reports()):
        pipeline.turn()
        made.step()
    (held,) = (cut for cut in made.reports() if cut.name == name)
    assert held.complete, held
