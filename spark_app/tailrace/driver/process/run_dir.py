"""The run directory: what a running driver leaves on disk for its other commands, and where it keeps scratch files.

`lock` (held while running), `server.json` (where the status server listens), `token` (for the verbs that change
something), `capture.sock`, `spark.log`, Spark's checkpoint and scratch, `target` (indexes of
keys), in a pod `fenced` (another writer took over). Nothing here is needed to continue: the journal and the targets are
the state.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tailrace.contract.faults import in_a_pod
from tailrace.errors import ROOM_FIRST, Fenced, InvalidManifest, StorageFull, TailraceError, foreign

LOCK_TRIES, LOCK_PAUSE = 3, 0.1
"""Seconds between two tries."""
ONE_EACH = "Stop it first. Only another Replicator needs another --run-dir."
CHOOSE_ANOTHER = "Choose another --run-dir."
UNFIT = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG)
"""Errors with which another start in the same place would fail again. Others may be temporary: memory, open files, a
disk."""
MAX_SOCKET_PATH = 100
"""Unix socket addresses end at 107 bytes."""


class AlreadyRunning(TailraceError):
    """Another process uses this run directory."""

    exit_code = 2


class NotRunning(TailraceError):
    """No driver answers from this run directory."""


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Files of a run directory: what the system says against it is named."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename or place}: {error.strerror}"
        if foreign.full(error):
            raise StorageFull(message, ROOM_FIRST) from error
        if error.errno in UNFIT:
            raise InvalidManifest(message, CHOOSE_ANOTHER) from error
        raise


def token_of(path: Path) -> str:
    """The token in a file of the user's. Raises `InvalidManifest`."""
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InvalidManifest(f"cannot read the token file {path}: {why}", "Correct --token-file.") from error
    if not token:
        raise InvalidManifest(f"the token file {path} is empty", "Write the bearer token into it.")
    return token


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
            message = f"cannot use the run directory {self.path}: {error.strerror}"
            if foreign.full(error):
                raise StorageFull(message, ROOM_FIRST) from error
            raise InvalidManifest(message, CHOOSE_ANOTHER) from error
        # A command that looks whether somebody runs holds the lock for a moment.
        for tries_left in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if not tries_left:
                    self.release()
                    message = f"another `tailrace run` uses {self.path}"
                    raise AlreadyRunning(message, ONE_EACH) from error
            time.sleep(LOCK_PAUSE)

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def refuse_if_fenced(self) -> None:
        """Refuses to start in a container of the operator that is restarted where a driver was fenced: it would take
        the change log back from its new owner before the operator can stop it. A new pod has a new folder; a start by
        hand is not refused."""
        if not in_a_pod():
            return
        try:
            message = self._fenced.read_text("utf-8")
        except FileNotFoundError:
            return
        self.release()
        raise Fenced(message, "Stop the other writer, then change spec.restartNonce.")

    def remember_fenced(self, error: Fenced) -> None:
        """Stores the error for the next container of this pod. A disk that is full must not hide what happened."""
        if in_a_pod():
            with suppress(OSError):
                self._fenced.write_text(error.message, "utf-8")

    @property
    def _fenced(self) -> Path:
        return self.path / "fenced"

    def make_token(self) -> str:
        """A new bearer token, readable by this user only."""
        token = secrets.token_urlsafe(32)
        path = self.path / "token"
        with writing(self.path):
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as sink:
                sink.write(token)
        return token

    def announce(self, url: str, token_file: Path | None, storage: str = "") -> None:
        """Record for the other commands where the server is, and whose it is. `storage`: the change log's location."""
        token = str(token_file or self.path / "token")
        document = {"url": url, "tokenFile": token, "pid": os.getpid(), "storage": storage}
        fresh = self.path / "server.json.new"
        with writing(self.path):
            fresh.write_text(json.dumps(document))
            fresh.replace(self.path / "server.json")

    def retract(self) -> None:
        (self.path / "server.json").unlink(missing_ok=True)

    def server(self, storage: str | None = None) -> tuple[str, Path]:
        """URL and token file of the running driver; `NotRunning` when there is none. `storage`: the change log that it
        must have, for two manifests may share a name. A driver that was killed has retracted nothing, and by now
        another process may listen at its port: the lock shows whether it lives."""
        try:
            if not self._taken():
                raise OSError("nobody holds its lock")
            document = json.loads((self.path / "server.json").read_text())
            url, token, theirs = str(document["url"]), Path(document["tokenFile"]), str(document["storage"])
        except (OSError, ValueError, KeyError) as error:
            raise NotRunning(f"no driver runs in {self.path}", "Start `tailrace run`, or add its --run-dir.") from error
        if storage is not None and theirs and theirs != storage:
            raise InvalidManifest(
                f"the driver that runs in {self.path} has storage.location {theirs}, this manifest has {storage}",
                "Use that driver's manifest. Two Replicators of one name on one machine each need a --run-dir.",
            )
        return url, token

    def _taken(self) -> bool:
        if self._lock is not None:
            return True
        with (self.path / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
