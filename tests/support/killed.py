"""SIGKILL at a seam without a program of its own: what is done there is done by a fork of the test's process.

For what needs neither threads nor a JVM, and leaves what it does in storage or in a server.
"""

import os
import signal
from collections.abc import Callable

from support.seam_names import checked
from tailrace import seams


def killed_at(seam: str, work: Callable[[], object], visit: int = 1) -> None:
    """The fork that does `work` dies at the given visit of the seam."""
    checked(f"{seam}=kill")
    pid = os.fork()
    if pid == 0:
        try:
            seams._plan, seams._visits = {seam: ("kill", visit)}, {}
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"{seam} was never reached"
