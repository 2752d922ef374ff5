"""Tables of a lake that go back to cuts: all of Tailrace in one process, over a database in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typing_extensions import override

from demo.compare import READERS
from support.pipeline import lake
from support.scripted_database import Database
from support.scripted_runs import Copy, by_key, manifest
from tailrace.changelog.logged import LoggedCut
from tailrace.contract.resources import Replicator
from tailrace.driver.asking import rewind as rewinding
from tailrace.driver.asking.cuts import CutKeeper
from tailrace.driver.asking.rewind import Rewound, WantedCut
from tailrace.places import Places

Rows = dict[int, str | None]


class Rewindable(Copy):
    """Real tables."""

    def __init__(self, database: Database, folder: Path, format: str, spark: SparkSession) -> None:
        tables = lake(Replicator.model_validate(manifest(folder, format)), spark)
        super().__init__(database, folder, format, tables)
        self.format, self.spark = format, spark
        self.held: dict[str, list[Rows]] = {}
        """What the source held at each cut."""

    def keeper(self) -> CutKeeper:
        driver, target = self.driver, Places(self.replicator.spec).target
        return CutKeeper(driver.journal, driver.client, driver.progress, target, text=str)

    def cut(self, name: str) -> None:
        """Made and held, of what the source holds now."""
        self.level()
        keeper = self.keeper()
        keeper.make(name)
        self.held[name] = self.source_rows()
        while any(cut.waits for cut in keeper.reports()):
            self.turn()
            keeper.step()
        (made,) = (cut for cut in keeper.reports() if cut.name == name)
        assert made.complete, made

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

    def rewind(self, *patterns: str, **moment: Any) -> Iterator[LoggedCut | Rewound]:
        """As the command does it, with the session of the tests."""
        replicator = self.replicator
        places, wanted = Places(replicator.spec), WantedCut(**moment)
        return rewinding.rewind(replicator, places, lambda: self.spark, wanted, patterns or ("*.*",))
