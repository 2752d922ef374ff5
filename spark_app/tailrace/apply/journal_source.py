"""The journal as a Structured Streaming source: its offset is the record number.

Imports nothing but the standard library and PySpark's data source interface, on purpose: Spark starts Python processes
for a source again and again, and what they import is paid each time (docs/decisions/0002). The driver, which tails the
journal anyway, leaves the newest record's number in a small local file (`HeadFile`); the reader looks at nothing else.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

FORMAT = "tailrace_journal"
SCHEMA = "record long"
MAX_RECORDS = 500
"""Records of one micro-batch: Spark asks for no limit, so the reader sets its own."""


class HeadFile:
    """The newest record's number, replaced atomically; one writer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, number: int) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(number))
        fresh.replace(self._path)

    def read(self) -> int:
        return int(self._path.read_text())


class Records(InputPartition):
    """The records after `start` up to and with `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class JournalStreamReader(DataSourceStreamReader):
    """Runs in a Python process beside the driver; `first`: the record before the first that is asked for."""

    def __init__(self, head: HeadFile, first: int) -> None:
        self._head = head
        self._position = first
        self._initial = first

    def initialOffset(self) -> dict[str, int]:
        return {"record": self._initial}

    def latestOffset(self) -> dict[str, int]:
        """Spark asks this before `initialOffset` at a first start; no more than `MAX_RECORDS` after the last batch."""
        return {"record": max(self._position, min(self._head.read(), self._position + MAX_RECORDS))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._position = end["record"]
        return [Records(start["record"], end["record"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        assert isinstance(partition, Records)
        return iter([(partition.end,)] if partition.end > partition.start else [])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: the journal has its own retention."""


def journal_source(head: Path, first: int) -> type[DataSource]:
    """The data source of one journal."""

    class JournalSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return JournalStreamReader(HeadFile(head), first)

    return JournalSource
