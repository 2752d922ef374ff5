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
