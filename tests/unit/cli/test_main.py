"""How the command ends."""

import subprocess
import sys

import pytest

from support.proof.process import ENVIRONMENT
from tailrace import __version__
from tailrace.cli import main

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


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"tailrace {__version__}\n"
