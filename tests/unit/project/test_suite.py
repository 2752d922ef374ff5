"""The suite stays quick: few files start whole drivers."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import costs, halves, one_session
from support.one_session import OneSession, place_of

ROOT = Path(__file__).resolve().parents[3]
STARTS_DRIVERS = re.compile(r"\bDeployment\(|\bprove\b|\bProof\.begin|\blocal_kubelet\b")
DRIVERS = {
    "integration/cli/test_command_line.py",
    "integration/driver/test_farewell.py",
    "integration/driver/test_faults.py",
    "integration/driver/test_idle.py",
    "integration/driver/test_odd_names.py",
    "integration/driver/test_once_delta.py",
    "integration/driver/test_once_s3.py",
    "integration/sources/test_chunk_rule.py",
    "proof/test_cuts.py",
    "proof/test_dropped_tables.py",
    "proof/test_edges.py",
    "proof/test_followed.py",
    "proof/test_foreign.py",
    "proof/test_live_spec.py",
    "proof/test_lost.py",
    "proof/test_mysql_failover.py",
    "proof/test_mysql_seams.py",
    "proof/test_new_copy.py",
    "proof/test_repairs_spark.py",
    "proof/test_rewind.py",
    "proof/test_seams.py",
}
"""Files that start `tailrace run` as processes: 10 CPU seconds each time, and 20 with what waits for it."""
MAY_BE_UNKNOWN = 25


def test_no_other_file_starts_whole_drivers() -> None:
    """What needs no process of its own runs in the test's: `support.pipeline.Pipeline`, with its Spark session."""
    files = [*(ROOT / "tests/integration").rglob("test_*.py"), *(ROOT / "tests/proof").glob("test_*.py")]
    starting = {str(path.relative_to(ROOT / "tests")) for path in files if STARTS_DRIVERS.search(path.read_text())}
    assert starting == DRIVERS


def test_the_times_of_most_files_are_recorded() -> None:
    """By them the longest files begin first: `TAILRACE_RECORD=1 make test` writes them."""
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    known = costs.recorded()
    unknown = [file for file in files if costs.lane_of(file) and file not in known]
    assert len(unknown) <= MAY_BE_UNKNOWN, f"record the times again (TAILRACE_RECORD=1 make test): {unknown}"


def test_a_worker_that_collects_from_the_end_has_the_same_tests_in_the_same_order(pytester: pytest.Pytester) -> None:
    """Else xdist would refuse to run; the files are read from the end."""
    for name in ("a/test_1.py", "a/b/test_2.py", "c/test_3.py", "test_4.py"):
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_one(): ...\ndef test_two(): ...\n")

    def collected(*plugins: object) -> tuple[list[str], list[str]]:
        arguments = ("--collect-only", "--import-mode=importlib", str(pytester.path))
        run = pytester.inline_run(*arguments, plugins=plugins)
        read = [call.item.path.name for call in run.getcalls("pytest_itemcollected")]
        return read, [item.nodeid for item in run.getcall("pytest_collection_finish").session.items]

    (forwards, plain), (backwards, same) = collected(), collected(halves.Backwards())
    assert len(plain) == 8 and same == plain
    assert backwards == forwards[::-1]


def test_a_quick_run_leaves_out_what_was_dear_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a recorded cost is run."""
    for name in ("dear", "cheap", "unknown"):
        (pytester.path / f"test_{name}.py").write_text("def test_one(): ...\n")
    known = {"test_dear.py": {"cpu": costs.QUICK + 0.1}, "test_cheap.py": {"cpu": costs.QUICK}}
    monkeypatch.setattr(costs, "TESTS", pytester.path / "tests")
    monkeypatch.setattr(costs, "recorded", lambda: known)
    run = pytester.inline_run("--import-mode=importlib", str(pytester.path), plugins=[costs.Quick()])
    ran = [report.fspath for report in run.getreports("pytest_runtest_logreport") if report.when == "call"]
    assert sorted(ran) == ["test_cheap.py", "test_unknown.py"]


def test_a_quick_run_has_most_of_the_unit_tests() -> None:
    """Else `make check` would say little."""
    unit = [str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit").rglob("test_*.py")]
    known = costs.recorded()
    dear = [file for file in unit if file in known and known[file]["cpu"] > costs.QUICK]
    assert 0 < len(dear) < len(unit) / 5


def test_no_test_is_parametrized_by_what_chance_gives() -> None:
    """Each process of a run would collect other tests, and xdist refuses to run any."""
    found = re.compile(r"parametrize\([^\n]*\bseeds\(")
    files = (ROOT / "tests").rglob("test_*.py")
    assert not [str(path) for path in files if path != Path(__file__) and found.search(path.read_text())]


def test_neither_ci_nor_make_test_asks_a_live_warehouse() -> None:
    """Which `make live-bigquery` and `make live-snowflake` do."""
    dry = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "LIVE" in (ROOT / "Makefile").read_text()
    assert not re.search("live-|LIVE", dry.stdout + (ROOT / ".ci/run").read_text())


def test_what_make_check_leaves_out_is_run_by_make_test() -> None:
    """Among the integration tests: the others run in the same quick run of the unit tests."""
    dry = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    (queue,) = (line for line in dry.stdout.replace(";", " ").splitlines() if "tests/integration/capture/" in line)
    dear = costs.left_out("tests/unit/")
    assert dear and set(dear) <= set(queue.split())
    (unit,) = (line for line in dry.stdout.replace(";", " ").splitlines() if " tests/unit " in line)
    assert "--quick" in unit.split()


class Worker:
    """Notes what it is given, and says that it has run it."""

    def __init__(self, name: str, files: list[str]) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.files, self.given, self.shutting_down = files, list[str](), False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += [self.files[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


SPARK = ["tests/integration/targets/test_delta_table.py", "tests/integration/targets/test_conformance.py"]
PLAIN = [f"tests/proof/test_{name}.py" for name in ("seams", "lost", "edges", "cuts")]


def queue_of(files: list[str], count: int) -> tuple[Any, list[Worker]]:
    """A queue of files with one test each, and its workers, which have begun."""
    config = SimpleNamespace(getvalue=lambda _: [f"{count}*popen"], option=SimpleNamespace(loadscopereorder=False))
    queue: Any = OneSession(config)
    workers = [Worker(f"gw{number}", files) for number in range(count)]
    for worker in workers:
        queue.add_node(worker)
    for worker in workers:
        queue.add_node_collection(worker, [f"{file}::test_one" for file in files])
    queue.schedule()
    return queue, workers


def test_one_worker_takes_the_files_with_a_spark_session_and_none_waits_while_a_file_is_left() -> None:
    assert [place_of(file) for file in (*SPARK, *PLAIN)] == [one_session.SPARK] * 2 + [None] * 4
    files = [PLAIN[0], *SPARK, *PLAIN[1:]]
    queue, workers = queue_of(files, 2)
    assert [worker.given for worker in workers] == [SPARK, PLAIN[:2]]
    queue.mark_test_complete(workers[0], files.index(SPARK[0]))
    assert workers[0].given == [*SPARK, PLAIN[2]]


def test_another_worker_takes_the_files_with_an_emulator() -> None:
    with_it = [f"tests/integration/targets/test_{name}_copies.py" for name in ("bigquery", "snowflake")]
    assert [place_of(file) for file in with_it] == [one_session.EMULATOR] * 2
    _, workers = queue_of([*PLAIN, *with_it, *SPARK], 3)
    assert [worker.given for worker in workers] == [SPARK, with_it, PLAIN[:2]]


@pytest.mark.parametrize(("wall", "given"), [(one_session.WORTH / 2, []), (one_session.WORTH * 2, [SPARK[1]])])
def test_a_second_session_is_started_for_many_files_alone(
    monkeypatch: pytest.MonkeyPatch, wall: float, given: list[str]
) -> None:
    """The worker ends, and the first one takes what is left."""
    monkeypatch.setattr(one_session, "recorded", lambda: {file: {"wall": wall} for file in SPARK})
    more = [f"tests/integration/targets/test_{name}.py" for name in ("delta_checkpoint", "iceberg_state")]
    monkeypatch.setattr(one_session, "UNKNOWN", {"wall": 0.0})
    files = [*more, PLAIN[0], PLAIN[1], SPARK[1]]
    queue, (first, second) = queue_of(files, 2)
    assert (first.given, second.given) == (more, PLAIN[:2])
    queue.mark_test_complete(second, files.index(PLAIN[0]))
    assert second.given == [*PLAIN[:2], *given] and second.shutting_down == (not given)
    queue.mark_test_complete(first, files.index(more[0]))
    assert first.given == (more if given else [*more, SPARK[1]])


def test_a_worker_in_the_place_of_a_crashed_one_gets_nothing_before_it_has_collected() -> None:
    queue, _ = queue_of([*SPARK, *PLAIN], 1)
    late = Worker("gw9", [])
    queue.add_node(late)
    queue.schedule()
    assert late.given == []
