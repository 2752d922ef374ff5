"""Work of a fork that is frozen in the middle (SIGSTOP), as an executor is whose machine is suspended, and continues
later, whatever has happened meanwhile."""

import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self


def freeze() -> None:
    """Called by the work."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Frozen:
    """A fork that does `work` until it freezes. It needs connections that are not its parent's."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended before it was frozen: {status}"
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def thaw(self) -> bool:
        """Let it continue to its end. False: its work failed."""
        os.kill(self.pid, signal.SIGCONT)
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        return os.waitstatus_to_exitcode(status) == 0
