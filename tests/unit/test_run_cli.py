"""How the command ends."""

import subprocess
import sys

from support.proof.process import ENVIRONMENT

SCRIPT = """
import queue, threading
import duckdb
from tailrace.run import cli

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
