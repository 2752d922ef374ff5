"""The worker of a run that takes the files with the tests' Spark session first; all others take them last.

Each session costs 20 CPU seconds until it has read and written both formats, and each target's emulator some more. The
longest files begin first otherwise, as they were collected; no worker waits while a file is left.
"""

import re
from functools import cache
from pathlib import Path

from typing_extensions import override
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # xdist has no types

ROOT = Path(__file__).resolve().parents[2]
WITH_SPARK = re.compile(r'\bspark: "?SparkSession\b|\bsubject: Subject\b')
"""Of a test's or a fixture's arguments."""


@cache
def has_spark(file: str) -> bool:
    """Whether a file (relative to the repository) uses the session; a wrong guess costs time alone."""
    path = ROOT / file
    return path.is_file() and WITH_SPARK.search(path.read_text()) is not None


class OneSession(LoadFileScheduling):  # type: ignore[misc]  # as above
    """Files as work units, of which one worker has its own choice."""

    @override
    def _assign_work_unit(self, node: object) -> None:
        first = node is self.nodes[0]
        chosen = next((file for file in self.workqueue if has_spark(file) == first), None)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)
