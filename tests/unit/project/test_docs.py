"""What the documents say about commands, options, errors and exit codes, held against the code."""

import argparse
import ast
import pkgutil
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import tailrace
from support import error_names
from support.syntax import tree
from tailrace.changelog.records import EpochStarted, Heartbeat, Origin, Record
from tailrace.changelog.records.terms import Closed
from tailrace.changelog.state import HANDLERS
from tailrace.cli import main as cli
from tailrace.cli.kubectl import main as plugin
from tailrace.contract.change import immutable
from tailrace.contract.status import Status
from tailrace.driver.telling import metrics

ROOT = Path(__file__).resolve().parents[3]
DOCS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests/README.md",
    ROOT / "charts/tailrace/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/dev").glob("*.md")),
]


def test_the_fields_that_cannot_be_changed_are_listed() -> None:
    text = (ROOT / "docs/kubernetes.md").read_text()
    (line,) = re.findall(r"^\* (`source\.type`.*) cannot be changed\.$", text, re.MULTILINE)
    assert sorted(re.findall("`([^`]+)`", line)) == sorted(immutable())


def test_every_error_that_a_user_can_meet_is_explained_and_no_other() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Errors by name")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([A-Z][A-Za-z]{3,})`", section))
    assert explained == error_names.shown()


def test_every_exit_code_is_in_the_table_and_in_the_help() -> None:
    codes = {kind.exit_code for kind in error_names.kinds()} | {0}
    table = (ROOT / "docs" / "operations.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes
    helped = cli.EXAMPLES.partition("exit codes:")[2]
    assert {int(code) for code in re.findall(r"(?<![\w.])(\d+) [a-z]", helped)} == codes


def test_every_metric_is_in_the_table_and_no_other() -> None:
    status = Status(name="shop", state="Running", started_at=1, updated_at=2)
    shown = re.findall(r"^# TYPE (\S+)", metrics.render(status).decode(), re.MULTILINE)
    text = (ROOT / "docs" / "operations.md").read_text().partition("| metric |")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(tailrace_\w+)`", text)) == set(shown)


def test_every_kind_of_event_and_every_field_of_a_record_is_in_the_format() -> None:
    text = (ROOT / "docs" / "change-log-format.md").read_text()
    kinds = text.partition("Kinds: ")[2].partition("Their fields")[0]
    models: list[type[Closed]] = [*cast(Iterable[type[Closed]], HANDLERS), Heartbeat, Origin, EpochStarted]
    handled = {str(model.model_fields["kind"].default) for model in models}
    assert set(re.findall(r"`([a-z-]+)`", kinds)) == handled
    table = text.partition("## Records")[2].partition("Kinds: ")[0]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z_]+)`", rows)) == set(Record.model_fields)


def test_every_command_in_the_documents_exists_with_its_options() -> None:
    verbs = next(a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    seen = set()
    for path in DOCS:
        for line in re.findall(r"(?:^|`|bin/)tailrace ([a-z]+ .*)$", path.read_text(), re.MULTILINE):
            verb, _, rest = line.partition("`")[0].partition("#")[0].partition(" ")
            assert verb in verbs, f"{path.name}: {line}"
            options = {option for action in verbs[verb]._actions for option in action.option_strings}
            assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= options, f"{path.name}: {line}"
            seen.add(verb)
    assert {"run", "doctor", "status", "snapshot", "pause", "drop"} <= seen


def test_every_command_of_the_plugin_in_the_documents_is_understood() -> None:
    parser = plugin.parser()
    lines = [line for path in DOCS for line in re.findall(r"^kubectl tailrace (.*)$", path.read_text(), re.MULTILINE)]
    verbs = {
        parser.parse_args(shlex.split(line, comments=True)).command
        for line in lines
        if not line.startswith("--version")
    }
    known = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert verbs == set(known)


def test_every_bound_of_the_performance_page_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    known = [path.as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    for name in re.findall(r"`([\w/]*test_\w+\.py)`", text):
        assert any(path.endswith(f"/{name}") for path in known), name
    table = text.partition("## Bounds of what grows")[2].partition("\n\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    assert all(re.search(r"\| (.*test_\w+\.py.*|the same) \|$", row) for row in rows), rows


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for path in DOCS:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_section_that_is_cited_exists() -> None:
    anchors = {path: set(map(anchor, re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE))) for path in DOCS}
    for path in DOCS:
        for target, section in re.findall(r"\]\(([^)#]*)#([^)]+)\)", path.read_text()):
            page = (path.parent / target).resolve() if target else path
            assert page not in anchors or section in anchors[page], f"{path.name}: {target}#{section}"
    sources = [*(ROOT / "spark_app").rglob("*.py"), *(ROOT / "operator").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    cited = {s for source in sources for s in re.findall(r"docs/dev/design\.md#([a-z-]+)", source.read_text())}
    assert cited and cited <= anchors[ROOT / "docs" / "dev" / "design.md"]


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_every_make_target_and_path_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCS:
        text = path.read_text()
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{path.name}: make {target}"
        folders = "docs|tests|tools|examples|charts|manifests|crds|argocd|spark_app|operator"
        for name in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


DEVELOPERS = [path for path in DOCS if path.parent.name in ("dev", "tests") or path.parent == ROOT]
CODE = [path for folder in ("spark_app", "operator", "tests", "tools") for path in (ROOT / folder).rglob("*.py")]


def test_every_file_that_the_documents_name_by_the_end_of_its_path_exists() -> None:
    files = {f"/{path.relative_to(ROOT)}" for path in CODE}
    seen = set()
    for path in DOCS:
        for name in re.findall(r"`([\w/]+\.py)`", path.read_text()):
            assert any(file.endswith(f"/{name}") for file in files), f"{path.name}: {name}"
            seen.add(name)
    assert len(seen) > 20


def test_every_folder_of_tests_that_their_page_names_exists() -> None:
    text = (ROOT / "tests/README.md").read_text()
    kinds = "unit|integration|proof|soak|model|support|fixtures"
    named = set(re.findall(rf"`((?:{kinds})/[\w/]*)`", text))
    assert len(named) > 8
    assert {name for name in named if not (ROOT / "tests" / name).exists()} == set()


def members(names: set[str]) -> dict[str, set[str]]:
    """Class -> what its body defines or annotates, over all of the code."""
    found: dict[str, set[str]] = {}
    for path in CODE:
        # Parsing all files takes seconds.
        for node in tree(path).body if names & set(re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)) else ():
            if isinstance(node, ast.ClassDef):
                inside = found.setdefault(node.name, set())
                for part in ast.walk(node):
                    if isinstance(part, ast.FunctionDef):
                        inside.add(part.name)
                    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        inside.add(part.target.id)
    return found


def test_every_class_that_developers_are_told_of_exists_with_its_members() -> None:
    of_class = re.compile(r"`([A-Z][a-z]+(?:[A-Z]\w*)?)(?:\.(\w+))?(?:\([^`]*)?`")
    told = [(path.name, *found) for path in DEVELOPERS for found in of_class.findall(path.read_text())]
    names = {name for _, name, _ in told}
    known = members(names)
    for page, name, member in told:
        assert name in known, f"{page}: {name}"
        assert not member or member in known[name], f"{page}: {name}.{member}"
    assert len(names) > 40


def test_every_member_that_the_pages_name_beside_a_protocol_is_one_of_it() -> None:
    """In the tables of adding-a-source.md and adding-a-target.md: a protocol, and what it has."""
    pages, seen = (ROOT / "docs" / "dev").glob("adding-a-*.md"), 0
    row = re.compile(r"^\| `([A-Z]\w+)` \|([^|]*)\|", re.MULTILINE)
    told = [(page.name, *found) for page in pages for found in row.findall(page.read_text())]
    known = members({protocol for _, protocol, _ in told})
    for page, protocol, does in told:
        named = set(re.findall(r"`([a-z_]+)(?:\([^`]*)?`", does))
        assert named <= known[protocol], f"{page}: {protocol} has no {sorted(named - known[protocol])}"
        seen += len(named)
    assert seen > 8


def test_every_module_in_the_documents_exists() -> None:
    seen = set()
    for path in [*DOCS, *(ROOT / "docs" / "decisions").glob("*.md")]:
        for name in re.findall(r"(?<![\w./-])tailrace(?:_operator)?(?:\.[a-z_]+)+(?![\w/-])", path.read_text()):
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError) as error:
                raise AssertionError(f"{path.name}: {name}") from error
            seen.add(name)
    rooms = {f"tailrace.{module.name}" for module in pkgutil.iter_modules(tailrace.__path__)}
    assert rooms <= set(re.findall(r"`(tailrace\.\w+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert rooms <= seen


OTHER_NAMES = re.compile(r"spark\.(log|databricks|python)\b|log\.info|capture\.sock|tailrace\.(columns|applied|__)")
"""Settings, files and properties whose names look like those of modules; `docs/reference.md` has the fields."""


def test_every_module_that_the_code_names_exists() -> None:
    """In backticks and by the end of its path, such as `driver.launch`."""
    ends, seen = set(), set()
    for folder in ("spark_app", "operator", "tools", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = [part for part in path.relative_to(ROOT / folder).with_suffix("").parts if part != "__init__"]
            ends |= {".".join(parts[i:]) for i in range(len(parts))}
    packages = {path.parent.name for path in CODE if path.name == "__init__.py"}
    fields = (ROOT / "docs/reference.md").read_text()
    for path in CODE:
        for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?(?:\([^`]*)?`", path.read_text()):
            parts = name.split(".")
            if parts[0] in packages and name not in fields and not OTHER_NAMES.match(name):
                assert any(".".join(parts[:n]) in ends for n in range(2, len(parts) + 1)), f"{path.name}: {name}"
                seen.add(name)
    assert len(seen) > 40


def test_decisions_are_numbered_once_and_cited_by_numbers_that_exist() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    numbers = [record.name[:4] for record in records]
    assert len(set(numbers)) == len(numbers)
    assert [record.read_text()[:7] for record in records] == [f"# {number} " for number in numbers]
    sources = [*DOCS, *records, *(ROOT / "spark_app").rglob("*.py"), *(ROOT / "spark_app").rglob("*.java")]
    cited = {n for source in sources for n in re.findall(r"docs/decisions/(\d{4})", source.read_text())}
    assert cited <= set(numbers)


def test_the_index_of_decisions_lists_each_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| \d{4}-\d\d-\d\d \|", (folder / "README.md").read_text(), re.MULTILINE
    )
    written = [(path.name[:4], path.name, path.read_text().partition("\n")[0]) for path in sorted(folder.glob("0*.md"))]
    assert sorted((number, name, f"# {number} {title}") for number, name, title in listed) == written


def test_a_superseded_decision_is_one_line_that_names_its_successor() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text().partition("## Superseded")[2]
    superseded = re.findall(r"^\| \[\d{4}\]\((\S+)\) .* \| \[\S+\]\((\S+)\) \|$", index, re.MULTILINE)
    assert len(superseded) > 30
    for name, successor in superseded:
        body = (folder / name).read_text().splitlines()[1:]
        assert [line for line in body if f"({successor})" in line] == [line for line in body if line], name
