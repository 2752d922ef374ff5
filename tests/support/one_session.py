"""The workers of a run that take the files with the tests' Spark session first, and those with a warehouse's emulator;
all others take them last.

Each session costs 20 CPU seconds until it has read and written both formats, and each emulator some until it is warm.
The longest files begin first otherwise, as they were collected. A worker without a session ends before it would start
one for a few files; else none waits while a file is left.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from typing_extensions import override
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # xdist has no types

from support.costs import recorded

ROOT = Path(__file__).resolve().parents[2]
WITH_SPARK = re.compile(r'\bspark: "?SparkSession\b|\bsubject: Subject\b')
"""Of a test's or a fixture's arguments."""
WITH_EMULATOR = re.compile(r"\b(?:BigQuery|Snowflake)Service\b|\bwarehouse_(?:copies|reader)\b")
SPARK, EMULATOR = range(2)
"""Places of the workers that take such files first."""
WORTH = 120.0
"""Seconds that the files with a session which are left take together: for less no other one is started."""
UNKNOWN = {"wall": 30.0}


@cache
def place_of(file: str) -> int | None:
    """The worker that takes a file (relative to the repository) first; a wrong guess costs time alone."""
    path = ROOT / file
    text = path.read_text() if path.is_file() else ""
    if WITH_SPARK.search(text):
        return SPARK
    return EMULATOR if WITH_EMULATOR.search(text) else None


class OneSession(LoadFileScheduling):  # type: ignore[misc]  # as above
    """Files as work units, of which two workers have their own choice."""

    @override
    def _assign_work_unit(self, node: Any) -> None:
        chosen = self._choice(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    @override
    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:  # it has taken a crashed worker's place, and still collects
            return
        if self.workqueue and not node.shutting_down and self._choice(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _choice(self, node: Any) -> str | None:
        """The next file of a worker; None: it has no session, and none is to be started for what is left."""
        place = list(self.nodes).index(node)
        ordered = sorted(self.workqueue, key=lambda file: self._rank(place, place_of(file)))
        chosen = next(iter(ordered), None)
        if chosen is None or place == SPARK or place_of(chosen) != SPARK:
            return chosen
        has_session = any(place_of(file) == SPARK for file in self.assigned_work[node])
        return chosen if has_session or self._left() > WORTH else None

    @staticmethod
    def _rank(place: int, first: int | None) -> int:
        """The lower, the sooner: its own files, those of nobody, emulators, Spark."""
        if first is None:
            return 1
        return 0 if first == place else 3 - first

    def _left(self) -> float:
        """Seconds that the queue's files with a session took when they were recorded."""
        known = recorded()
        return sum(known.get(file, UNKNOWN)["wall"] for file in self.workqueue if place_of(file) == SPARK)
