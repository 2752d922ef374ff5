"""How many executors the tasks fill."""

from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.core.status import SparkStageInfo
from pyspark.sql import SparkSession

from tailrace.spark import executors_wanted


def stage(number: int, tasks: int, completed: int) -> SparkStageInfo:
    return SparkStageInfo(number, 0, "collect", tasks, 0, completed, 0)


class Tracker:
    """`stages`: by number; None: gone between the two questions."""

    def __init__(self, stages: dict[int, SparkStageInfo | None]) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:
        return sorted(self.stages)

    def getStageInfo(self, number: int) -> SparkStageInfo | None:
        return self.stages[number]


def session(tracker: Tracker, master: str = "k8s://https://api", fault: Exception | None = None) -> SparkSession:
    def answer() -> Tracker:
        if fault is not None:
            raise fault
        return tracker

    context = SimpleNamespace(master=master, statusTracker=answer)
    return cast(SparkSession, SimpleNamespace(sparkContext=context, conf={"spark.executor.cores": "4"}))


def test_tasks_of_all_stages_that_have_begun_count_until_they_are_done() -> None:
    wanted = executors_wanted.of(session(Tracker({3: stage(3, 50, 46), 7: stage(7, 1, 0), 8: None, 9: stage(9, 2, 2)})))
    assert wanted() == 2, "five tasks, four in one"
    assert executors_wanted.of(session(Tracker({3: stage(3, 50, 46)})))() == 1
    assert executors_wanted.of(session(Tracker({})))() == 0


def test_tasks_of_local_mode_want_none() -> None:
    assert executors_wanted.of(session(Tracker({3: stage(3, 50, 0)}), "local[5]"))() == 0
    assert executors_wanted.of(session(Tracker({3: stage(3, 50, 0)}), "local-cluster[1,2,1024]"))() == 13


@pytest.mark.parametrize("fault", [Py4JNetworkError("gone"), ConnectionRefusedError()])
def test_a_jvm_that_does_not_answer_says_nothing(fault: Exception) -> None:
    """Its death is the main loop's to name."""
    assert executors_wanted.of(session(Tracker({}), fault=fault))() is None
