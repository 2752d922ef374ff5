"""How the command ends."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.proof.process import ENVIRONMENT
from support.resources import replicator
from tailrace import __version__
from tailrace.cli import commands, main

ROOT = Path(__file__).resolve().parents[3]

BROKEN = """
import threading
from concurrent.futures import ThreadPoolExecutor
from tailrace.cli import main as cli

def main():
    ThreadPoolExecutor(1).submit(threading.Event().wait)
    raise RuntimeError("nobody thought of this")

cli.main = main
cli.entry()
"""

SCRIPT = """
import queue, threading
import duckdb
from tailrace.cli import main as cli

started = threading.Event()

def callback():
    held = duckdb.connect()
    started.set()
    queue.Queue().get()

def main():
    threading.Thread(target=callback, daemon=True).start()
    started.wait()
    print("last words", end="")
    return 3

cli.main = main
cli.entry()
"""


def test_the_command_ends_quietly_while_a_callback_thread_holds_native_objects() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "last words", "")


def test_an_unexpected_error_ends_the_command_although_a_pool_s_thread_never_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 1
    assert "RuntimeError (text withheld" in done.stderr and "nobody thought of this" not in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("wrong", [["-f", "none.yaml"], ["-f", "m.yaml", "--listen", "here"]])
def test_what_is_wrong_with_the_command_is_told_before_pyspark_is_imported(wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(json.dumps(replicator()))
    script = (
        f"import sys; from tailrace.cli import main; print(main.main(['run', *{wrong!r}]), 'pyspark' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=tmp_path)
    assert done.stdout == "2 False\n", done.stderr


def test_what_asks_the_source_alone_does_without_pyspark() -> None:
    script = "import sys; from tailrace.cli import difference, retained; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["run"], 0),
        (["run", "--once"], 1),
        (["doctor"], 1),
        (["drop", "--wait", "5m"], 1),
        (["snapshot", "--tables", "a.b"], 1),
    ],
)
def test_a_command_that_is_interrupted_does_not_pass_for_done(
    command: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, command[0], interrupted)
    assert main.main([*command, "-f", "x.yaml"]) == code
    told = "interrupted before it was done" if code else "interrupted; the next start continues"
    assert capsys.readouterr().err == f"tailrace: {told}\n"


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"tailrace {__version__}\n"


@pytest.mark.parametrize(
    ("extra", "command"), [("spark", "run"), ("spark", "status"), ("postgresql", "doctor"), ("console", "console")]
)
def test_without_an_extra_the_command_says_how_to_install_it(extra: str, command: str, tmp_path: Path) -> None:
    """A module that is None in `sys.modules` cannot be imported, as if it were not installed."""
    hidden = main.EXTRAS[extra]
    script = f"import sys; sys.modules.update(dict.fromkeys({hidden})); from tailrace.cli import main; "
    manifest = tmp_path / "shop.yaml"
    manifest.write_text(json.dumps(replicator()))
    call = f"sys.exit(main.main(['{command}', '-f', '{manifest}', '--run-dir', '{tmp_path}']))"
    done = subprocess.run(
        [sys.executable, "-c", script + call], check=False, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert (done.returncode, done.stdout) == (1, "")
    every = ",".join(dict.fromkeys(("spark", "postgresql", "mysql", extra)))
    assert re.fullmatch(
        rf"tailrace: ExtraMissing: package \w+ of the extra {extra} is not installed."
        rf" Fix: In a clone, run `pip install '\.\[{every}\]'`\.\n",
        done.stderr,
    )


def test_help_and_version_need_no_extra() -> None:
    hidden = [package for packages in main.EXTRAS.values() for package in packages]
    script = f"import sys; sys.modules.update(dict.fromkeys({hidden})); from tailrace.cli import main; "
    for option, words in (("--help", "commands:"), ("--version", f"tailrace {__version__}")):
        command = [sys.executable, "-c", script + f"main.main(['{option}'])"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)
        assert done.returncode == 0 and words in done.stdout, done.stderr


def test_the_extras_are_those_of_the_package() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in main.EXTRAS.items():
        assert packages == tuple(re.split(r"[\[<>=-]", line)[0] for line in listed[extra])
