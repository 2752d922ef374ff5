"""The console script: Ctrl-C in its first moments."""

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, {handler})  # what a terminal, or `nohup`, gives
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "tailrace.errors":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["tailrace", "--version"]
from {module} import entry
entry()
"""


def run(handler: str, module: str = "tailrace.cli.start") -> subprocess.CompletedProcess[str]:
    program = INTERRUPTED.format(handler=handler, module=module)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_ctrl_c_before_the_command_is_known_ends_it_without_a_traceback() -> None:
    assert "Traceback" in run("signal.default_int_handler", "tailrace.cli.main").stderr, "that is what it is there for"
    ended = run("signal.default_int_handler")
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    ended = run("signal.SIG_IGN")
    assert ended.returncode == 0
    assert ended.stdout.startswith("tailrace ")


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_IGN"])
def test_the_command_has_the_signal_as_it_was(handler: str) -> None:
    program = (
        f"import signal; signal.signal(signal.SIGINT, {handler}); before = signal.getsignal(signal.SIGINT)\n"
        "from tailrace.cli import main, start\n"
        "main.entry = lambda: print(signal.getsignal(signal.SIGINT) is before)\n"
        "start.entry()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


def test_the_plugin_of_kubectl_starts_in_the_same_way() -> None:
    program = (
        "import sys; sys.argv = ['kubectl-tailrace', '--version']; from tailrace.cli import start; start.kubectl()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("kubectl tailrace ")
