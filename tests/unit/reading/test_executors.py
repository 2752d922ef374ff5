"""Where a chunk is read: by a job of Spark, or in the driver, where it has few bytes or Spark is still starting."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override
from unit.reading.test_task import BATCH, Files, Reading, Sent, asked

from tailrace.contract.pods import DriverPod
from tailrace.errors import Retry
from tailrace.reading import executors
from tailrace.reading.executors import MEANWHILE_BYTES, MEANWHILE_CHUNKS, ChunkExecutors, room_meanwhile
from tailrace.reading.task import ChunkTask
from tailrace.sources.api import ChunkRead, Writer


class Cluster:
    """A Spark of which only the number of jobs is known."""

    def __init__(self) -> None:
        self.jobs = 0
        self.sparkContext = self

    def setLocalProperty(self, *_: str) -> None: ...

    def setJobDescription(self, _: str) -> None: ...

    def parallelize(self, tasks: list[ChunkTask], _: int) -> "Cluster":
        self.jobs, self.tasks = self.jobs + 1, tasks
        return self

    def map(self, act: Any) -> Any:
        return SimpleNamespace(collect=lambda: [act(one) for one in self.tasks])


@pytest.mark.parametrize(
    ("batches", "small", "jobs"),
    [(3, True, 0), (3, False, 1), (5, True, 1)],
    ids=["small", "unknown", "larger than it seemed"],
)
def test_a_small_table_is_read_without_a_job(
    batches: int, small: bool, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "SMALL_TABLE_BYTES", 4 * BATCH.nbytes)
    files, cluster = Files(), Cluster()

    def started() -> Any:
        assert jobs, "a session that may still be starting is waited for"
        return cluster

    found = ChunkExecutors(started).read(asked(batches, files, keyless=True), small)
    assert (found.all_rows, cluster.jobs) == (10 * batches, jobs)
    assert sum(len(rows) for rows in files.rows.values()) == 10 * batches


def test_the_start_of_spark_is_no_part_of_the_time_that_a_chunk_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def started() -> Any:
        now[0] += 7
        return Cluster()

    assert ChunkExecutors(started).read(asked(3, Files(), keyless=False)).waited == 7


@pytest.mark.parametrize(
    ("batches", "keyless", "ready", "jobs"),
    [(3, False, False, 0), (3, False, True, 1), (5, False, False, 1), (3, True, False, 1)],
    ids=["starting", "started", "a chunk of many bytes", "without a key"],
)
def test_while_spark_is_starting_the_first_chunks_are_read_in_the_driver(
    batches: int, keyless: bool, ready: bool, jobs: int
) -> None:
    files, cluster = Files(), Cluster()
    both = ChunkExecutors(lambda: cast(Any, cluster), lambda: ready, meanwhile_bytes=4 * BATCH.nbytes)
    found = both.read(asked(batches, files, keyless))
    assert (found.all_rows, cluster.jobs) == (10 * batches, jobs)
    assert sum(len(rows) for rows in files.rows.values()) == 10 * batches
    assert found.bytes_in_memory == (0 if jobs else 3 * BATCH.nbytes)


@pytest.mark.parametrize(("room", "jobs"), [(40, 0), (39, 1)], ids=["four batches", "less"])
def test_rows_that_pass_as_they_are_sent_need_room_in_the_driver_for_a_few_batches(room: int, jobs: int) -> None:
    """Batches of ten bytes. A single row may be large, and some batches are read ahead."""
    cluster, task = Cluster(), asked(1, Files(wire=Sent()), keyless=False)
    sent = ChunkTask(cast(Any, Reading(9, product="a product")), task.table, task.part, None, task.writer, "s", 0)
    found = ChunkExecutors(lambda: cast(Any, cluster), lambda: False, meanwhile_bytes=room).read(sent)
    assert (found.path, found.rows, found.bytes_in_memory, cluster.jobs) == ("sent:///0", 90, 0, jobs)


def test_spark_is_begun_for_a_chunk_of_a_table_that_is_not_small() -> None:
    """A short run does not start it for small tables, and a large one's chunks do not wait for who asks first."""
    begun = list[str]()
    both = ChunkExecutors(cast(Any, Cluster), lambda: False, lambda: begun.append("Spark"))
    assert both.read(asked(1, Files(), keyless=False), small=True).all_rows == 10
    assert not begun
    assert both.read(asked(1, Files(), keyless=False)).all_rows == 10
    assert begun == ["Spark"]


def test_the_driver_reads_a_few_chunks_at_a_time_and_leaves_others_to_spark() -> None:
    under_way, most, over = [0], [0], threading.Event()
    reading = threading.Semaphore(0)

    class Slow(Reading):
        @override
        def read(self, table: object, part: object, where: object, write: Writer) -> ChunkRead:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            reading.release()
            assert over.wait(30)
            under_way[0] -= 1
            return super().read(table, part, where, write)

    waiting = threading.Semaphore(0)

    def starting() -> Any:
        waiting.release()
        raise Retry("Spark is still starting")

    both, found = ChunkExecutors(starting, lambda: False), list[object]()

    def read() -> None:
        task = asked(1, Files(), keyless=False)
        try:
            found.append(both.read(ChunkTask(Slow(1), task.table, task.part, None, task.writer, "s", 0)))  # type: ignore[arg-type]  # the fake
        except Retry as error:
            found.append(error)

    threads = [threading.Thread(target=read) for _ in range(MEANWHILE_CHUNKS + 3)]
    for thread in threads:
        thread.start()
    for _ in range(MEANWHILE_CHUNKS):
        assert reading.acquire(timeout=30)
    for _ in range(3):
        assert waiting.acquire(timeout=30), "these have asked Spark"
    over.set()
    for thread in threads:
        thread.join(30)
    assert most == [MEANWHILE_CHUNKS]
    assert sum(isinstance(one, Retry) for one in found) == 3
    assert both.read(asked(1, Files(), keyless=False)).all_rows == 10, "there is room again, also after a failure"


def test_a_chunk_that_failed_in_the_driver_leaves_its_room() -> None:
    both = ChunkExecutors(cast(Any, Cluster), lambda: False)
    for _ in range(MEANWHILE_CHUNKS + 1):
        with pytest.raises(Retry, match="cut"):
            both.read(asked(1, Files(), keyless=False, cut_off=True))
    assert both.read(asked(1, Files(), keyless=False)).bytes_in_memory == BATCH.nbytes


def test_the_next_chunk_in_the_driver_has_at_most_half_of_its_room() -> None:
    both = ChunkExecutors(cast(Any, Cluster), meanwhile_bytes=1000)
    assert both.following_rows(10, 100) == 50
    assert both.following_rows(10, 100_000_000) == 1


@pytest.mark.parametrize(
    ("driver", "room"),
    [
        ({}, MEANWHILE_BYTES),
        ({"memory": "512Mi"}, 48 << 20),
        ({"memory": "512Mi", "memoryOverhead": "128Mi"}, 16 << 20),
        ({"memory": "64Gi"}, MEANWHILE_BYTES),
    ],
)
def test_chunks_in_the_driver_have_a_share_of_what_its_container_has_beside_the_jvm(
    driver: dict[str, str], room: int
) -> None:
    assert room_meanwhile(DriverPod.model_validate(driver).beside_jvm) == room
