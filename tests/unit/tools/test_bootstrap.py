"""Look-ups of downloaded things, and guards on the shape of the tree."""

import re
import sys
import threading
import tomllib
from itertools import chain
from pathlib import Path

import grimp
import pytest

import bootstrap
import release
import servers
import tailrace
from support.versions import major_for
from tailrace.spark import artifacts

ROOT = Path(__file__).resolve().parents[3]


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    assert servers.postgres_dir(18).parent == tmp_path.resolve()
    assert artifacts.jar_set_dir("lake").parent == tmp_path.resolve()


def test_a_missing_artifact_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    with pytest.raises(artifacts.ArtifactMissing, match="make setup"):
        artifacts.jars("lake")
    with pytest.raises(artifacts.ArtifactMissing, match="no PostgreSQL 9"):
        servers.postgres_bin(9)


def test_a_half_made_folder_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    servers.postgres_dir(14).mkdir(parents=True)
    with pytest.raises(artifacts.ArtifactMissing, match="incomplete"):
        servers.postgres_bin(14)


def test_a_jar_set_with_another_list_gets_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = artifacts.jar_set_dir("lake")
    monkeypatch.setitem(artifacts.JAR_SETS, "lake", (*artifacts.LAKE_JARS, "org.example:more:1"))
    assert artifacts.jar_set_dir("lake") != before


def test_install_fills_once_and_leaves_nothing_of_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "thing-1"

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        bootstrap.install(target, fail)
    assert not target.exists()
    assert bootstrap.install(target, lambda folder: (folder / "whole").touch())
    assert not bootstrap.install(target, fail)
    assert sorted(path.name for path in target.iterdir()) == [artifacts.READY, "whole"]


def test_a_test_keeps_its_postgresql_version_and_the_oldest_and_the_newest_occur() -> None:
    names = [f"tests/integration/test_x.py::test_{number}" for number in range(50)]
    assert [major_for(name) for name in names] == [major_for(name) for name in names]
    assert {major_for(name) for name in names} == {min(servers.POSTGRES_VERSIONS), max(servers.POSTGRES_VERSIONS)}


def test_the_demo_needs_nothing_that_is_built_from_go() -> None:
    assert {*bootstrap.DEFAULT, *chain(*bootstrap.GROUPS.values())} <= set(bootstrap.PARTS)
    demos = chain(*(parts for name, parts in bootstrap.GROUPS.items() if name.startswith("demo-")))
    assert not {"s3", "kubernetes", "helm", "node"} & {*bootstrap.DEFAULT, *demos}


def test_what_takes_minutes_is_announced_while_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    parts = list(bootstrap.GROUPS["cluster"])
    bootstrap.announce(parts)
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines()] == ["kubernetes", "helm", "node"]
    for folder, _ in bootstrap.slow().values():
        folder.mkdir(parents=True)
        (folder / artifacts.READY).touch()
    bootstrap.announce(parts)
    assert capsys.readouterr().out == ""


def test_a_command_is_quiet_and_of_a_failure_the_end_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    lines = "import sys; [print(f'go: downloading module {n}', file=sys.stderr) for n in range(300)]"
    bootstrap.run([sys.executable, "-c", lines])
    with pytest.raises(bootstrap.SetupFailed) as failed:
        bootstrap.run([sys.executable, "-c", f"{lines}; sys.exit('no network')"])
    assert capfd.readouterr() == ("", "")
    told = str(failed.value).splitlines()
    assert told[-1] == "no network" and len(told) == bootstrap.LAST_LINES + 1


def test_what_is_only_fetched_is_fetched_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)
    for name in ("postgres-newest", "jars-lake"):
        monkeypatch.setitem(bootstrap.PARTS, name, lambda: both.wait() >= 0)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "postgres-newest", "jars-lake"])
    assert bootstrap.main() == 0


def test_what_go_builds_is_built_while_the_rest_is_fetched_and_a_failure_of_either_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both, made = threading.Barrier(2, timeout=20), list[str]()

    def fails() -> bool:
        raise bootstrap.SetupFailed("no network")

    def helm() -> bool:
        made.append("helm")
        return True

    monkeypatch.setitem(bootstrap.PARTS, "kubernetes", lambda: both.wait() >= 0)
    monkeypatch.setitem(bootstrap.PARTS, "venv-demo", lambda: both.wait() >= 0)
    monkeypatch.setitem(bootstrap.PARTS, "node", fails)
    monkeypatch.setitem(bootstrap.PARTS, "helm", helm)
    monkeypatch.setattr(bootstrap, "check_tools", lambda parts: None)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "venv-demo", "node", "kubernetes", "helm"])
    assert bootstrap.main() == 1
    assert made == ["helm"]
    assert "setup failed: no network" in capsys.readouterr().err


def test_every_place_names_the_same_version(tmp_path: Path) -> None:
    assert list(release.differing(ROOT, tailrace.__version__)) == []
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    chart = tmp_path / "charts/tailrace/Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9."))
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    told = "\n".join(release.differing(tmp_path, tailrace.__version__))
    assert f"Chart.yaml: 9.{tailrace.__version__}, not {tailrace.__version__}" in told
    assert told.count("Dockerfile: nothing matches") == 2


def test_no_package_file_shadows_the_standard_library_or_the_tests() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists(), "operator/ as a package hides the standard library's"
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert not (ROOT / "tests" / "operator").exists()


def test_the_contract_imports_nothing_of_the_project_but_the_errors() -> None:
    graph = grimp.build_graph("tailrace", cache_dir=None)
    inside = {"tailrace.contract", *graph.find_descendants("tailrace.contract")}
    imported = {target for module in inside for target in graph.find_modules_directly_imported_by(module)}
    assert {module for module in imported - inside if not f"{module}.".startswith("tailrace.errors.")} == set()


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=! ]", line, maxsplit=1)[0].lower() for line in wanted}
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names - {"tailrace"} <= pinned  # an extra may name other extras


def test_uv_takes_packages_from_where_pip_is_told_to() -> None:
    listed = "global.cert='/ca.pem'\nglobal.index-url='https://old/simple'\nglobal.timeout='9'\n"
    listed += "global.find-links='\\n/a\\n/b'\n:env:.index-url='https://new/simple'\n"
    assert bootstrap.from_pip(listed) == {
        "SSL_CERT_FILE": "/ca.pem",
        "UV_DEFAULT_INDEX": "https://new/simple",
        "UV_FIND_LINKS": "/a,/b",
    }


def test_a_folder_of_wheels_comes_beside_those_that_uv_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/theirs")
    assert bootstrap.uv_environment(sys.executable, Path("/ours"))["UV_FIND_LINKS"] == "/theirs,/ours"
    monkeypatch.setenv("UV_FIND_LINKS", "/for-uv")
    assert bootstrap.uv_environment(sys.executable, Path("/ours"))["UV_FIND_LINKS"] == "/for-uv,/ours"
