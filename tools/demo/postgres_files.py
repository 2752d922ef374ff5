"""Programs and the initialised data directory behind `PostgresServer`.

`initdb` takes seconds, copying its result does not: the result is kept per version beside the programs. PostgreSQL
refuses to run as root, and root's home is closed to the user who runs it instead; then both are kept in a folder
under the temporary directory that this user can reach.
"""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import servers
from tailrace.errors import TailraceError
from tailrace.spark import artifacts

UNPRIVILEGED = "nobody"
"""The user that runs the server when root asks for one."""

INITDB = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")


class ProgramFailed(TailraceError):
    """A PostgreSQL program ended with an error."""


@dataclass(frozen=True)
class PostgresFiles:
    """One version's programs, ready to run for this user."""

    home: Path
    """Holds `bin/`, `lib/`, `share/`."""
    template: Path
    """An initialised data directory; only copied, never started."""
    user: str | None
    """The user that runs the programs; None: the user of this process."""

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end and return what it printed."""
        process = self.popen(program, *arguments, output=subprocess.PIPE)
        printed = process.communicate()[0].decode(errors="replace")
        if process.returncode:
            raise ProgramFailed(f"{program} ended with {process.returncode}.", printed.strip()[-2000:])
        return printed

    def popen(self, program: str, *arguments: str, output: int | IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start a program; a session of its own keeps Ctrl-C on the terminal away from it."""
        return subprocess.Popen(
            [str(self.home / "bin" / program), *arguments],
            cwd="/",
            user=self.user,
            group=None if self.user is None else _group(self.user),
            extra_groups=None if self.user is None else [],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def prepare(major: int) -> PostgresFiles:
    """Programs and template of a major version, made on first use."""
    source = servers.postgres_bin(major).parent
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    shelf = _shared_folder() if user else source.parent / "postgres-templates"
    shelf.mkdir(parents=True, exist_ok=True)
    with (shelf / f"{source.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = _reachable_copy(source, shelf) if user else source
        files = PostgresFiles(home, shelf / f"{source.name}-template", user)
        if not files.template.exists():
            _make_template(files)
    return files


def copy_template(files: PostgresFiles, into: Path) -> None:
    """Give a server its data directory `into/data`; `into` becomes the running user's."""
    # cp -a keeps owner and mode, and clones blocks where the file system can.
    subprocess.run(["cp", "-a", "--reflink=auto", str(files.template), str(into / "data")], check=True)
    if files.user:
        shutil.chown(into, files.user)


def _shared_folder() -> Path:
    """A folder under the temporary directory that only root writes and everybody reads."""
    shelf = Path(tempfile.gettempdir()) / "tailrace-postgresql"
    shelf.mkdir(mode=0o755, exist_ok=True)
    found = shelf.lstat()
    if found.st_uid != 0 or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise ProgramFailed(f"{shelf} is not a folder that only root can write.", "Remove it and try again.")
    shelf.chmod(0o755)
    return shelf


def _reachable_copy(source: Path, shelf: Path) -> Path:
    copy = shelf / source.name
    if not artifacts.is_ready(copy):
        shutil.rmtree(copy, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=shelf) as temporary:
            made = Path(temporary) / source.name
            shutil.copytree(source, made, symlinks=True)
            made.rename(copy)
    return copy


def _make_template(files: PostgresFiles) -> None:
    with tempfile.TemporaryDirectory(dir=files.template.parent) as temporary:
        made = Path(temporary) / "data"
        made.mkdir(mode=0o700)
        if files.user:
            Path(temporary).chmod(0o755)
            shutil.chown(made, files.user)
        files.run("initdb", *INITDB, "-D", str(made))
        with (made / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'tailrace.conf'\n")
        made.rename(files.template)


def _group(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid
