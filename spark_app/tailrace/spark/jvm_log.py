"""The log of Spark's JVM: on one machine a file in the run directory; on Kubernetes lines of JSON in the container's
log as well, so that they outlive the pod wherever logs are collected.

Called by `session` when it starts the JVM. What the JVM prints beside its log is in the file (standard error), or
wrapped into JSON (standard output): each line of the container's log is one document.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

CONFIGURATION = Path(__file__).with_name("log4j2.properties")
"""Log configuration of every JVM on Kubernetes; executors find it at the same path of the same image."""
_FILE = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 32MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
logger.late.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.late.level = error
"""
"""Two files of bounded size: a driver runs for years. Micro-batches are kept open, which Spark would call late once a
minute."""


def configuration(log_file: Path, forwarded: bool) -> str:
    """Log configuration of the driver's JVM. `forwarded`: its log goes to standard output as well."""
    console = CONFIGURATION.read_text() if forwarded else ""
    return _FILE.format(log_file=log_file) + console


class Forwarder:
    """Takes a JVM's standard output through a pipe and passes each line on as JSON, until the JVM has ended."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """`write` takes a line with its end; None: to what is standard error at the time."""
        self._write = write or _to_standard_error
        self._end, self.pipe = os.pipe()

    def start(self) -> None:
        """Once the JVM has its copy of `pipe`, or will never have one."""
        os.close(self.pipe)
        threading.Thread(target=self._run, name="spark-log", daemon=True).start()

    def _run(self) -> None:
        with os.fdopen(self._end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip():
                    self._write(document(line.rstrip("\n")) + "\n")


def _to_standard_error(line: str) -> None:
    sys.stderr.write(line)


def document(line: str) -> str:
    """The line if it is a document, else one that holds it."""
    try:
        if isinstance(json.loads(line), dict):
            return line
    except ValueError:
        pass
    found = {"time": round(time.time(), 3), "level": "info", "logger": "spark", "message": line}
    return json.dumps(found, ensure_ascii=False)
