"""Runs the real `tailrace` command as a child process: started, killed at seams, restarted, brought to an end.

A `Deployment` is one Replicator with its folders; each `run` is a process group of its own, so that a kill takes the
driver, its JVM and capture, or only the one that is asked for. It is forked from a process that has Tailrace's modules
already. (From an empty interpreter, as a user starts it: `tests/integration/cli/test_command_line.py`.)
"""

import atexit
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import yaml

import tailrace
from support.forks import Forked, Forks
from support.process import Program
from support.seam_names import checked

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
"""The very code that the tests import, also where another checkout is installed."""
TAILRACE = (sys.executable, "-m", "tailrace.cli.main")
MODULES = ("cli.commands", "driver.driver", "sources.postgresql.source", "targets.lake.target")
"""Imports of a driver."""


@cache
def commands() -> Forks:
    """The process that drivers and commands are forked from."""
    made = Forks("support.forked_command", *(f"tailrace.{module}" for module in MODULES))
    atexit.register(made.close)
    return made


def forked(arguments: Sequence[str], environment: dict[str, str], output: Path, errors: Path | None = None) -> Program:
    """A `tailrace` command."""
    made = commands()
    pid = made.fork("run", output, list(arguments), environment, None if errors is None else str(errors))
    return Program(Forked(made, pid), output)


def forked_copies(manifest: Path, folder: Path, seams: str, level: bool, again: str = "") -> Program:
    """All of Tailrace in one process, until a seam kills it. `level`: not before all tables have been read. `again`:
    all tables are to be read once more: `read` or `resync`."""
    made, output = commands(), folder / "copies.log"
    given = str(manifest), str(folder), checked(seams), level, again
    return Program(Forked(made, made.fork("copies", output, *given)), output)


HELD = "snapshot.after-plan"
"""The seam before a snapshot's first chunk."""


@dataclass
class Deployment:
    """Manifest, folders and processes of one Replicator under proof."""

    folder: Path
    source: dict[str, object]
    """`spec.source` of the manifest."""
    format: str = "delta"
    spec: dict[str, object] = field(default_factory=dict)
    """What else the spec holds; merged over the defaults here."""
    name: str = "proof"
    requests: list[dict[str, object]] = field(default_factory=list)
    started: list[Program] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Added to that of `run`."""

    @property
    def marks(self) -> Path:
        """Folder of the newest run where a seam leaves a file of its name before it acts."""
        return self.folder / f"seams-{len(self.started)}"

    def read_by_executors(self, run: Program) -> None:
        """With the seam `HELD`=hold: lets snapshots be read once Spark is there, and not by the driver until then."""
        held = self.marks / HELD
        run.until(held.exists, 240, "a snapshot that is planned")
        run.until(lambda: "Spark has started" in run.tail(1 << 20), 600, "Spark's start")
        held.unlink()

    @property
    def manifest(self) -> Path:
        return self.folder / "replicator.yaml"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def state(self) -> Path:
        return self.folder / "run"

    def write_manifest(self) -> None:
        spec: dict[str, object] = {
            "source": self.source,
            "tables": {"include": ["proof.*"]},
            "target": {"type": self.format, "location": self.lake.as_uri()},
            "storage": {"location": self.log.as_uri()},
            "driver": {"memory": "1Gi", "cores": 2},
            "apply": {"freshness": "2s"},
        }
        documents = [_resource("Replicator", self.name, spec | self.spec), *self.requests]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manifest.write_text(yaml.safe_dump_all(documents))

    def request(self, name: str, **spec: object) -> Path:
        """A file with a SnapshotRequest of its own."""
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(_resource("SnapshotRequest", name, {"replicator": self.name, **spec})))
        return path

    def start(self, *arguments: str, seams: str = "") -> Program:
        """`tailrace run -f … <arguments>`, with faults armed at seams (`name=kill@2,…`), each once."""
        self.write_manifest()
        number = len(self.started) + 1
        once = self.folder / f"seams-{number}"
        once.mkdir(exist_ok=True)
        command = ["run", "-f", str(self.manifest), "--run-dir", str(self.state), *arguments]
        environment = (
            ENVIRONMENT | self.environment | {"TAILRACE_SEAMS": checked(seams), "TAILRACE_SEAMS_ONCE": str(once)}
        )
        output = self.folder / f"run-{number}.log"
        output.touch()
        run = forked(command, environment, output)
        self.started.append(run)
        return run

    def close(self) -> None:
        """End whatever a failed test left running."""
        for run in self.started:
            if run.poll() is None:
                run.kill()
        # Capture outlives a driver that was killed; it is known by this deployment's folder.
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.state) in argument for argument in process.info["cmdline"] or ()):
                process.kill()

    def command(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Another `tailrace` command, to its end."""
        with TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            code = forked(arguments, dict(ENVIRONMENT), output, errors).wait(timeout)
            return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())

    def once(self, timeout: float = 600, seams: str = "") -> None:
        """`tailrace run --once` to success."""
        run = self.start("--once", seams=seams)
        code = run.wait(timeout)
        assert code == 0, f"exit code {code}\n{run.tail()}"


def status(deployment: Deployment) -> dict[str, Any] | None:
    """The running process's `GET /status`; None while nobody answers."""
    try:
        url = json.loads((deployment.state / "server.json").read_text())["url"]
        with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return document


def _resource(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "tailrace.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
