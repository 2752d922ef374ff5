"""The run directory: what a running driver leaves on disk for its other commands, and where it keeps scratch files.

`lock` (held while running), `server.json` (where the status server listens), `token` (for the verbs that change
something), `capture.sock`, `spark.log`, Spark's checkpoint and scratch. Nothing here is needed to
continue: the journal and the targets are the state.
"""

import fcntl
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import IO

from tailrace.errors import InvalidManifest, TailraceError

MAX_SOCKET_PATH = 100
"""Unix socket addresses end at 107 bytes."""


class AlreadyRunning(TailraceError):
    """Another process uses this run directory."""

    exit_code = 2


class NotRunning(TailraceError):
    """No driver answers from this run directory."""


class RunFolder:
    """Paths and files of one Replicator's run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self._lock: IO[str] | None = None

    @classmethod
    def of(cls, name: str, given: Path | None) -> "RunFolder":
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return cls(given if given is not None else state / "tailrace" / name)

    @property
    def socket(self) -> Path:
        """Capture's socket; a long path gets a short stand-in that is the same for the same folder."""
        path = self.path / "capture.sock"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            return path
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        return Path(os.environ.get("TMPDIR", "/tmp")) / f"tailrace-{os.getuid()}-{digest}.sock"

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def take(self) -> None:
        """Make the folder and lock it until this process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise InvalidManifest(
                f"cannot use the run directory {self.path}: {error}", "Choose another --run-dir."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise AlreadyRunning(
                f"another `tailrace run` uses {self.path}", "Stop it, or choose another --run-dir."
            ) from error

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def make_token(self) -> str:
        """A new bearer token, readable by this user only."""
        token = secrets.token_urlsafe(32)
        path = self.path / "token"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as sink:
            sink.write(token)
        return token

    def announce(self, url: str, token_file: Path | None) -> None:
        """Tell the other commands where the server is."""
        document = {"url": url, "tokenFile": str(token_file or self.path / "token"), "pid": os.getpid()}
        fresh = self.path / "server.json.new"
        fresh.write_text(json.dumps(document))
        fresh.replace(self.path / "server.json")

    def retract(self) -> None:
        (self.path / "server.json").unlink(missing_ok=True)

    def server(self) -> tuple[str, Path]:
        """URL and token file of the running driver; `NotRunning` when there is none."""
        try:
            document = json.loads((self.path / "server.json").read_text())
            return str(document["url"]), Path(document["tokenFile"])
        except (OSError, ValueError, KeyError) as error:
            raise NotRunning(f"no driver runs in {self.path}", "Start `tailrace run`, or add its --run-dir.") from error
