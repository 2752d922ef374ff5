"""Runs the real `tailrace` command as a child process: started, killed at seams, restarted, brought to an end.

A `Deployment` is one Replicator with its folders; each `run` is a process group of its own, so that a kill takes the
driver, its JVM and capture, or only the one that is asked for.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

import tailrace
from support.seam_names import checked

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
"""The very code that the tests import, also where another checkout is installed."""


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
    started: list["Run"] = field(default_factory=list)

    @property
    def marks(self) -> Path:
        """Folder of the newest run where a seam leaves a file of its name before it acts."""
        return self.folder / f"seams-{len(self.started)}"

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

    def start(self, *arguments: str, seams: str = "") -> "Run":
        """`tailrace run -f … <arguments>`, with faults armed at seams (`name=kill@2,…`), each once."""
        self.write_manifest()
        run = Run.start(self, ["run", "-f", str(self.manifest), "--run-dir", str(self.state), *arguments], seams)
        self.started.append(run)
        return run

    def close(self) -> None:
        """End whatever a failed test left running."""
        for run in self.started:
            if run.process.poll() is None:
                run.kill()
        # Capture outlives a driver that was killed; it is known by this deployment's folder.
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.state) in argument for argument in process.info["cmdline"] or ()):
                process.kill()

    def command(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Another `tailrace` command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "tailrace.cli.main", *arguments],
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            env=ENVIRONMENT,
        )

    def once(self, timeout: float = 600, seams: str = "") -> None:
        """`tailrace run --once` to success."""
        run = self.start("--once", seams=seams)
        code = run.wait(timeout)
        assert code == 0, f"exit code {code}\n{run.tail()}"


@dataclass
class Run:
    """One `tailrace run` process."""

    process: subprocess.Popen[bytes]
    output: Path

    @classmethod
    def start(cls, deployment: Deployment, arguments: list[str], seams: str) -> "Run":
        number = len(deployment.started) + 1
        output = deployment.folder / f"run-{number}.log"
        once = deployment.folder / f"seams-{number}"
        once.mkdir(exist_ok=True)
        environment = ENVIRONMENT | {"TAILRACE_SEAMS": checked(seams), "TAILRACE_SEAMS_ONCE": str(once)}
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "tailrace.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return cls(process, output)

    def tail(self, characters: int = 6000) -> str:
        return self.output.read_text(errors="replace")[-characters:]

    def wait(self, timeout: float) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s\n{self.tail()}") from None

    def family(self) -> list[psutil.Process]:
        """The driver's Python process and everything below it."""
        try:
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Of the driver's family so far; of what has ended only what its parent was told."""
        return sum(self.cpu_by_process().values())

    def cpu_by_process(self) -> dict[int, float]:
        """CPU seconds of each living process of the family, with those of its children that have ended."""
        spent = {}
        for process in self.family():
            with suppress(psutil.Error):
                spent[process.pid] = sum(process.cpu_times()[:4])
        return spent

    def child(self, part: str) -> psutil.Process:
        """The first process below the driver whose command line contains `part`."""
        for process in self.family()[1:]:
            try:
                if part in " ".join(process.cmdline()):
                    return process
            except psutil.NoSuchProcess:
                continue
        raise AssertionError(f"no process with {part!r} below the driver\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL to the whole group, as a machine that loses power; waits until all are gone."""
        family = self.family()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=20)
        self.process.wait(20)

    def until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Poll `condition()` while the process runs; fail naming `what`."""
        end = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.poll()} before: {what}\n{self.tail()}"
            assert time.monotonic() < end, f"waited {timeout} s for: {what}\n{self.tail()}"
            time.sleep(0.3)

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM, as Kubernetes does; the exit code. (SIGINT is ignored by what a shell starts in the background.)"""
        self.process.terminate()
        return self.wait(timeout)


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
