"""Every rule that is switched off, in the settings or in a line, says why."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RULES = r"(?:: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*|\[[a-z, -]+\])?"
IGNORE = re.compile(rf"# (?:noqa|type: ignore)\b(?P<rules>{RULES})(?P<reason>.*)$")


def test_every_rule_that_a_line_switches_off_is_named_and_has_a_reason() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, text=True, capture_output=True, check=True)
    wrong = [
        f"{name}:{number}: {line.strip()}"
        for name in listed.stdout.split()
        if (ROOT / name).exists() and ROOT / name != Path(__file__)
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if (found := IGNORE.search(line)) and not (found["rules"] and len(found["reason"].split()) > 1)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_rule_that_ruff_ignores_everywhere_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = tomllib.loads(text)["tool"]["ruff"]["lint"]["ignore"]
    explained = re.findall(r'^    "([A-Z]+[0-9]+)", # \S+ \S+', text, re.MULTILINE)
    assert explained == listed


def test_the_operator_uses_nothing_of_its_kubernetes_client_that_mypy_skips() -> None:
    """Whole documents of the API are skipped (pyproject.toml): calls with them would not be checked."""
    sources = [path.read_text() for path in sorted((ROOT / "operator").rglob("*.py"))]
    named = re.compile(r"^ *(?:from|import) kubernetes\b.*", re.MULTILINE)
    imports = [line for text in sources for line in named.findall(text)]
    used = {name for text in sources if named.search(text) for name in re.findall(r"\bclient\.(\w+)", text)}
    assert imports == ["from kubernetes.aio import client, config"]
    assert used == {"ApiClient", "Configuration"}
