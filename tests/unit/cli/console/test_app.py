"""The files of the page. Its answers are tested in integration/cli/test_console.py, over a copy that runs."""

import base64
import hashlib
import os
import re
import subprocess
import sys

import pytest

from tailrace.cli.console.app import PAGE, POLICY, STYLED

VENDORED = {
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""uPlot 1.6.32, as npm has it: the package has the integrity
sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==."""
OWN = sorted(path for path in PAGE.iterdir() if path.suffix in (".js", ".html", ".css"))


def test_what_is_not_made_here_is_as_it_was_published() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (PAGE / "vendor").iterdir()}
    assert found == VENDORED


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_page_names_no_other_place_and_makes_no_markup_of_texts(path: object) -> None:
    text = (PAGE / str(path)).read_text("utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert max(map(len, text.splitlines())) <= 120


def test_the_policy_lets_the_page_do_nothing_but_ask_its_own_server() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'" and "unsafe" not in POLICY and "*" not in POLICY
    assert {rules[name] for name in ("script-src", "connect-src")} == {"'self'"}
    style = re.findall(r"<style>(.*)</style>", STYLED, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in style]
    assert len(digests) == 1 and rules["style-src"] == f"'self' 'sha256-{digests[0]}'"
    assert "stylesheet" not in STYLED
    assert {rules[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}


BARRED = """
import sys
from tailrace.cli.main import EXTRAS
barred = [package for extra in ("spark", "postgresql", "mysql") for package in EXTRAS[extra]]
sys.modules |= dict.fromkeys([*barred, "kopf", "kubernetes"])  # importing them fails
from tailrace.cli.console.__main__ import main
sys.exit(main(["--api-server", "https://127.0.0.1:9", "--listen", "127.0.0.1:0", "--account", "/nothing"]))
"""


def test_the_console_of_a_cluster_starts_without_the_packages_of_drivers() -> None:
    """And says what it lacks outside a pod."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", BARRED], capture_output=True, text=True, env=environment, check=False)
    said = "cannot read /nothing/ca.crt: No such file or directory. Fix: Run in a pod with a ServiceAccount."
    assert done.returncode == 2 and said in done.stderr, done.stderr
