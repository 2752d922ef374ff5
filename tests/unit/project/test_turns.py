"""Cases that take turns, and what files cost, in runs of pytest of their own."""

import json
import re
from pathlib import Path

import pytest

from support import costs, versions

CONFTEST = """
import pytest
from support import costs, versions

def pytest_configure(config):
    config.addinivalue_line("markers", "turn(number, count): a turn")
    config.pluginmanager.register(costs.Costs(config))

def pytest_collection_modifyitems(config, items):
    versions.deselect_others(config, items)
"""
TESTS = """
import pytest
from support.versions import turns

@pytest.fixture(params=turns("old", "new"))
def server(request):
    return request.param

@pytest.mark.parametrize("format", turns("delta", "iceberg", "third"))
def test_of_both(server, format): pass

@pytest.mark.parametrize(("a", "b"), turns((1, 2), (3, 4)))
def test_of_pairs(a, b): pass

def test_of_none(): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_cases=TESTS)
    monkeypatch.setenv(versions.VARIABLE, "0")
    return pytester


def passed(run: pytest.Pytester, *arguments: str) -> set[str]:
    result = run.runpytest_inprocess("-v", "-p", "no:xdist", *arguments)
    lines = result.outlines
    assert result.ret == 0, result.parseoutcomes()
    return {line.partition("::")[2].partition(" ")[0] for line in lines if " PASSED " in line}


def test_every_combination_has_its_turn_and_one_runs_at_a_time(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for turn in range(6):
        monkeypatch.setenv(versions.VARIABLE, str(turn))
        seen.append(passed(run))
    assert all(len(names) == 3 and "test_of_none" in names for names in seen)
    assert len({name for names in seen for name in names if name.startswith("test_of_both")}) == 6
    assert len({name for names in seen for name in names if name.startswith("test_of_pairs")}) == 2


def test_a_soak_and_a_test_that_is_named_run_all_cases(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(passed(run, "test_cases.py::test_of_both")) == 6
    monkeypatch.setenv(versions.VARIABLE, versions.ALL)
    assert len(passed(run)) == 9


@pytest.mark.parametrize(("files", "sizes"), [("DEAR", [1, 2]), ("DEAREST", [1, 1, 1])])
def test_of_a_dear_file_one_part_runs_at_a_time_and_all_cases_have_their_turn(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, files: str, sizes: list[int]
) -> None:
    monkeypatch.setattr(versions, files, {"test_cases.py"})
    parts: list[list[set[str]]] = [[] for _ in sizes]
    for turn in range(len(sizes) * versions.SHIFT):
        monkeypatch.setenv(versions.VARIABLE, str(turn))
        parts[turn // versions.SHIFT].append(passed(run))
    assert sorted(size for part in parts for size in {len(names) for names in part}) == sizes
    seen = [set().union(*names) for names in parts]
    assert len(set().union(*seen)) == 9 == sum(map(len, seen)), "each in one part"


def test_dear_files_with_one_case_do_not_all_run_in_the_same_commits() -> None:
    """They were 3.5 of a run's CPU minutes, or none."""
    root = Path(versions.__file__).parents[2]
    texts = {file: (root / file).read_text() for file in versions.DEAR}
    single = [file for file, text in texts.items() if len(re.findall(r"^def test_", text, re.MULTILINE)) == 1]
    assert len(single) > 2 and {versions._part(file) for file in single} == {0, 1}


def test_dear_files_are_there() -> None:
    root = Path(versions.__file__).parents[2]
    assert [file for file in versions.DEAR | versions.DEAREST if not (root / file).is_file()] == []
    assert not versions.DEAR & versions.DEAREST


def test_the_turn_is_the_number_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(versions.VARIABLE)
    first = versions.turn()
    assert first is not None and first >= 0
    assert versions.turn() == first


def test_the_cost_of_a_file_holds_its_processes_and_decides_the_order(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "import subprocess, sys\n\ndef test_busy(): subprocess.run([sys.executable, '-c', 'sum(range(10**7))'])\n"
    pytester.makeconftest(CONFTEST)
    (pytester.mkdir("tests") / "unit").mkdir()
    Path("tests/unit/test_busy.py").write_text(busy)
    Path("tests/unit/test_idle.py").write_text("import time\n\ndef test_idle(): time.sleep(0.2)\n")
    for name, value in (("DURATIONS", {}), ("BUDGET", {"unit": 1, "proof": 1})):
        path = pytester.path / f"{name}.json"
        path.write_text(json.dumps(value))
        monkeypatch.setattr(costs, name, path)
    monkeypatch.setattr(costs, "TESTS", pytester.path / "tests")
    monkeypatch.setenv("TAILRACE_RECORD", "1")

    pytester.runpytest_inprocess("-p", "no:xdist", "tests").assert_outcomes(passed=2)
    recorded = costs.recorded()
    assert set(recorded) == {"tests/unit/test_busy.py", "tests/unit/test_idle.py"}
    assert recorded["tests/unit/test_busy.py"]["cpu"] > recorded["tests/unit/test_idle.py"]["cpu"]
    assert recorded["tests/unit/test_idle.py"]["wall"] >= 0.2

    slow = max(cost["wall"] for cost in recorded.values()) + 1
    costs.record({"tests/unit/test_idle.py": {"cpu": 0.0, "wall": slow}})
    lines = pytester.runpytest_inprocess("-p", "no:xdist", "-v", "tests").outlines
    assert [name for line in lines for name in ("idle", "busy") if f"test_{name} PASSED" in line] == ["idle", "busy"]
    assert any(line.startswith("unit") and "of  1.0 CPU minutes" in line for line in lines)


def test_a_lane_beyond_its_budget_is_marked() -> None:
    budget = json.loads(costs.BUDGET.read_text())
    over = {"tests/proof/test_a.py": {"cpu": 60 * budget["proof"] + 1, "wall": 1.0}}
    assert [line.endswith("OVER") for line in costs.report(over)] == [True, False]
    assert {costs.lane_of(f"{folder}/test_a.py") for folder in costs.LANES} == set(budget)
