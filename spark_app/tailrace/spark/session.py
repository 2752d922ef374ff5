"""The driver's Spark session: its start and its end. `spark.settings` has its configuration. Called by the driver."""

import errno
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from typing_extensions import override

from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import ROOM_FIRST, InvalidManifest, Retry, StorageFull, TailraceError, foreign
from tailrace.spark import artifacts, jvm_log
from tailrace.spark.settings import KUBERNETES, scratch, settings
from tailrace.targets.api import DriverJvm, Target

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""A JVM that has not ended by then, with its session stopped, is killed: it holds nothing that is not committed."""
POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="changes"><schedulingMode>FAIR</schedulingMode><weight>4</weight><minShare>2</minShare></pool>
  <pool name="snapshot"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""


def forget_leftovers(run_dir: Path) -> None:
    """Remove the working files (shuffled rows, broadcasts, temporary files) of a JVM that was killed: it could not do
    so itself. The run directory is ours alone."""
    for pattern in ("blockmgr-*", "spark-*", scratch(run_dir).name):
        for left in (run_dir / "spark").glob(pattern):
            shutil.rmtree(left, ignore_errors=True)


def utf8_paths(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the JVM needs beside `environment` to name files in UTF-8: it takes the encoding from the
    locale alone, and in a plain `C` it cannot open a location with an `ä`."""
    given = next((v for name in ("LC_ALL", "LC_CTYPE", "LANG") if (v := environment.get(name))), "")
    return {} if re.search("utf-?8", given, re.IGNORECASE) else {"LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Launched:
    """A JVM and what a session in it is started with."""

    jvm: DriverJvm
    conf: SparkConf
    run_dir: Path

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        process: subprocess.Popen[bytes] = self.jvm.gateway.proc
        return process


def start(spec: ReplicatorSpec, target: Target, run_dir: Path, log_file: Path, java_options: str = "") -> SparkSession:
    """Start the JVM, see `launch`, and a session in it."""
    return start_in(launch(spec, target, run_dir, log_file, java_options), spec, target)


def launch(spec: ReplicatorSpec, target: Target, run_dir: Path, log_file: Path, java_options: str = "") -> Launched:
    """Start the JVM, with `java_options` beside those of the settings; what it logs and prints goes to `log_file`. Its
    scratch files are in the run directory: a disk that is too small for them is named (`StorageFull`)."""
    with _room(run_dir):
        return _launch(spec, target, run_dir, log_file, java_options)


def start_in(launched: Launched, spec: ReplicatorSpec, target: Target) -> SparkSession:
    """Start the session, which takes longer than the JVM."""
    with _room(launched.run_dir):
        try:
            context = SparkContext(conf=launched.conf, gateway=launched.jvm.gateway)
        except Py4JJavaError as error:
            raise _refused(spec, error) from error
        context.setLogLevel("WARN")
        target.prepare(context._jsc.hadoopConfiguration())
        return SparkSession(context)


@contextmanager
def _room(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not foreign.full(error):
            raise
        raise StorageFull(f"Spark cannot start in {run_dir}: {os.strerror(errno.ENOSPC)}", ROOM_FIRST) from error


def _no_settings(run_dir: Path) -> Path:
    """An empty folder: the one that archives of classes are made for, unless it cannot be made or contains settings of
    a user."""
    shared = artifacts.no_spark_settings()
    with suppress(OSError):
        shared.mkdir(parents=True, exist_ok=True)
        if not any(shared.iterdir()):
            return shared
    own = run_dir / "spark-conf"
    own.mkdir(exist_ok=True)
    return own


def _launch(spec: ReplicatorSpec, target: Target, run_dir: Path, log_file: Path, java_options: str) -> Launched:
    forget_leftovers(run_dir)
    scratch(run_dir).mkdir(parents=True, exist_ok=True)
    (run_dir / "pools.xml").write_text(POOLS)
    forwarder = jvm_log.Forwarder() if os.environ.get("TAILRACE_SPARK_MASTER", "").startswith(KUBERNETES) else None
    (run_dir / "log4j2.properties").write_text(jvm_log.configuration(log_file, forwarder is not None))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Variables of the pod would bring settings past what `spec.sparkConf` refuses.
    os.environ |= {"PYSPARK_SUBMIT_ARGS": "pyspark-shell", "SPARK_CONF_DIR": str(_no_settings(run_dir))}
    os.environ |= utf8_paths(os.environ)
    values = settings(spec, target.spark(), run_dir, os.environ, boot=secrets.token_hex(4))
    values["spark.driver.extraJavaOptions"] += f" {java_options}"
    if values["spark.master"].startswith(KUBERNETES):
        os.environ["SPARK_LOCAL_IP"] = values["spark.driver.host"]
    else:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = SparkConf(loadDefaults=False)
    for name, value in values.items():
        conf.set(name, value)
    with log_file.open("ab") as sink:
        said = sink.fileno() if forwarder is None else forwarder.pipe
        # The gateway's own session: Ctrl-C is for us, the JVM is ended after the last commit.
        output = _Launch(stdout=said, stderr=sink, start_new_session=True)
        try:
            gateway = launch_gateway(conf, output)  # type: ignore[no-untyped-call]  # untyped in pyspark
        except (OSError, PySparkException) as error:
            raise Retry(
                f"Spark's JVM did not start: {str(error).splitlines()[0]}",
                f"Java 17 or newer must be on the PATH, and driver.memory must fit the machine; see {log_file}.",
            ) from error
        finally:
            if forwarder is not None:
                forwarder.start()
    java = gateway.jvm.org.apache.spark
    hadoop = java.deploy.SparkHadoopUtil.get().newConfiguration(java.SparkConf())  # as a session makes its own
    target.prepare(hadoop)
    return Launched(DriverJvm(gateway, hadoop), conf, run_dir)


class _Launch(dict[str, Any]):
    """Arguments of `Popen` without what PySpark adds to have the JVM ignore Ctrl-C, which a session of its own does:
    Python code between fork and exec dies now and then in a process whose libraries have threads by then."""

    @override
    def __setitem__(self, name: str, value: Any) -> None:
        if name != "preexec_fn":
            super().__setitem__(name, value)


def _refused(spec: ReplicatorSpec, error: Py4JJavaError) -> TailraceError:
    """The error for what Spark says before it has seen a row, which may be shown. A setting that it names has a value
    that a user chose."""
    texts = [cause.text.splitlines()[0][:500] for cause in foreign.chain(error) if cause.text]
    for one in spec.spark_conf:
        text = next((text for text in texts if one.name in text), None)
        if text is not None:
            return InvalidManifest(f"Spark did not start: {text}", f"Correct or remove {one.name} in spec.sparkConf.")
    fix = "Check spec.sparkConf." if spec.spark_conf else "See the log; report the error if it persists."
    return Retry(f"Spark did not start: {texts[-1] if texts else type(error).__name__}", fix)


def check(launched: Launched, log_file: Path) -> None:
    """Name the JVM's death: what calls into it afterwards only meets a refused connection."""
    code = launched.process.poll()
    if code is not None:
        raise Retry(
            f"Spark's JVM ended with code {code}",
            f"Its last lines are in {log_file}. Code -9 or 137: the machine was out of memory, see driver.memory.",
        )


def stop(spark: SparkSession, patience: float = STOP_SECONDS) -> None:
    """End the session and, within `patience` seconds, its JVM, which would else notice only later that its driver is
    gone."""
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # None only where no JVM was started
    try:
        spark.stop()
    finally:
        SparkContext._gateway = SparkContext._jvm = None  # the next session starts a JVM of its own
        end(jvm, patience)


def end(jvm: "subprocess.Popen[bytes]", patience: float = STOP_SECONDS) -> None:
    """End a JVM that has no session."""
    assert jvm.stdin is not None
    jvm.stdin.close()  # the gateway's sign to exit
    try:
        jvm.wait(patience)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
