"""What the documents say about commands, options, errors and exit codes, held against the code."""

import argparse
import importlib
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import tailrace
from tailrace.changelog.records import Closed, EpochStarted, Heartbeat, Origin, Record
from tailrace.changelog.state import HANDLERS
from tailrace.contract.status import Status
from tailrace.errors import TailraceError
from tailrace.run import cli, metrics

ROOT = Path(__file__).resolve().parents[2]
DOCS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "tests/README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEVER_SHOWN = {
    "AlreadyExists", "CaptureGone", "Conflict", "Gap", "Interrupted", "MissingTable", "NotFound", "ProgramFailed",
    "RecordRefused", "ServerFailed", "Stop", "TableStop", "TailraceError", "Unknown",
}  # fmt: skip
"""Bases, errors that are handled where they are raised, answers to a wrong id, and those of the demo's own server."""


def kinds() -> set[type[TailraceError]]:
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[TailraceError]] = set()
    left = [TailraceError]
    while left:
        found.add(kind := left.pop())
        left += kind.__subclasses__()
    return {kind for kind in found if kind.__module__.startswith("tailrace.")}


def test_every_error_that_a_user_can_meet_is_explained_and_no_other() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Errors by name")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([A-Z][A-Za-z]{3,})`", section))
    made_up = {"CaptureEnded", "InternalError", "SnapshotFailed"}
    assert explained == ({kind.__name__ for kind in kinds()} - NEVER_SHOWN) | made_up


def test_every_exit_code_is_in_the_table_and_in_the_help() -> None:
    codes = {kind.exit_code for kind in kinds()} | {0}
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
    cited = {s for source in sources for s in re.findall(r"docs/design\.md#([a-z-]+)", source.read_text())}
    assert cited and cited <= anchors[ROOT / "docs" / "design.md"]


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_every_make_target_and_path_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCS:
        text = path.read_text()
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{path.name}: make {target}"
        for name in re.findall(r"`((?:docs|tests|tools|examples|charts|manifests|crds|argocd)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_decisions_are_numbered_without_gaps_and_cited_by_numbers_that_exist() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [record.name[:4] for record in records]
    assert numbers == [f"{n:04d}" for n in range(1, len(records) + 1)]
    assert [record.read_text()[:7] for record in records] == [f"# {number} " for number in numbers]
    sources = [*DOCS, *records, *(ROOT / "spark_app").rglob("*.py"), *(ROOT / "spark_app").rglob("*.java")]
    cited = {n for source in sources for n in re.findall(r"docs/decisions/(\d{4})", source.read_text())}
    assert cited <= set(numbers)
