"""The driver's Spark session: local mode on a laptop, client mode on Kubernetes, with the same settings otherwise.

Called once by the driver. Settings are a pure function, so that they can be tested and printed.
"""

import errno
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from typing_extensions import override

from tailrace.contract.pods import Executors
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.units import size
from tailrace.errors import ROOM_FIRST, InvalidManifest, Retry, StorageFull, TailraceError, foreign, privacy
from tailrace.selection import masking
from tailrace.spark import artifacts, jvm_log
from tailrace.targets.api import SparkNeeds, Target

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""A JVM that has not ended by then, with its session stopped, is killed: it holds nothing that is not committed."""
POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="changes"><schedulingMode>FAIR</schedulingMode><weight>4</weight><minShare>2</minShare></pool>
  <pool name="snapshot"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""
KUBERNETES = "k8s://"
PREFIX = "TAILRACE_SPARK_CONF_"
RPC_PORT, BLOCK_PORT = "7078", "7079"
"""The driver's, on Kubernetes: executors come in through a NetworkPolicy that names them."""


AUTHENTICATED = {
    # Whoever is taken for an executor is sent tasks, and with them the keys of the object store. In local mode Spark
    # makes the secret itself, for each start and in memory only; on Kubernetes it is a file (`SECRET_FILE`).
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Spark's defaults are older: a cipher that does not notice changed bytes, and its first exchange of keys.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    # What is shuffled and spilled holds rows.
    "spark.io.encryption.enabled": "true",
}
"""A master that is neither `local` nor Kubernetes must get its secret where it is named."""
SECRET_FILE = "spark.authenticate.secret.file"
"""Setting in driver and executors; the operator mounts the file. Without it Spark writes a secret into the executors'
pods."""


SMALL_STEPS = {
    # Otherwise a worker reads the directory of Spark's jar before each task, see there.
    "spark.python.daemon.module": "tailrace.spark.worker_daemon",
    # Otherwise Hadoop starts chmod and readlink as processes, six times and more for each small file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings that make many small tasks and commits cheap (docs/decisions/0061)."""


def settings(
    spec: ReplicatorSpec, needs: SparkNeeds, run_dir: Path, environment: Mapping[str, str], boot: str = ""
) -> dict[str, str]:
    """Spark's configuration. `spec.spark_conf` has other names than all that is set here (`contract.spark_conf`).
    `needs`: the target's.
    `environment` has the master and the options of the place where the driver runs (`TAILRACE_SPARK_MASTER`,
    `TAILRACE_SPARK_CONF_<NAME>` with `_` for `.`): the operator sets them, and no user. `boot` is new with every start
    of the driver: on Kubernetes its executors carry it in their names."""
    memory = size(spec.driver.memory) >> 20
    master = _master(spec, environment)
    values = {
        "spark.master": master,
        "spark.app.name": "tailrace",
        "spark.jars": artifacts.spark_jars(*needs.jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": _java_options(run_dir),
        "spark.local.dir": f"{run_dir}/spark",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file:{run_dir}/pools.xml",
        "spark.python.worker.reuse": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{run_dir}/warehouse",
        **needs.settings,
        **SMALL_STEPS,
        **AUTHENTICATED,
        # What S3A has not uploaded yet. On executors this is the folder that goes with their pod.
        "spark.hadoop.hadoop.tmp.dir": "${java.io.tmpdir}/hadoop",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        **{one.name: one.value for one in spec.spark_conf},
    }
    for variable in (privacy.VARIABLE, masking.VARIABLE):
        if environment.get(variable):
            values[f"spark.executorEnv.{variable}"] = environment[variable]
    if master.startswith(KUBERNETES):
        values |= _on_kubernetes(spec, environment, boot)
    values |= {k[len(PREFIX) :].replace("_", "."): v for k, v in environment.items() if k.startswith(PREFIX)}
    if master.startswith(KUBERNETES) and values["spark.authenticate"] == "true" and SECRET_FILE not in values:
        raise InvalidManifest(
            f"{PREFIX}{SECRET_FILE.replace('.', '_')} is not set: driver and executors cannot prove who they are",
            "The operator is older than this image: upgrade the operator, or set sparkImage.tag or spec.image back.",
        )
    return values


def _java_options(run_dir: Path) -> str:
    """The driver's. In quotes: a run directory may have blanks in its name."""
    return (
        f'"-Dlog4j2.configurationFile={(run_dir / "log4j2.properties").as_uri()}"'
        f' "-Dderby.system.home={run_dir}/spark" "-Djava.io.tmpdir={scratch(run_dir)}"'
        " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
    )


def _on_kubernetes(spec: ReplicatorSpec, environment: Mapping[str, str], boot: str) -> dict[str, str]:
    """Client mode: this pod is the driver, executors are pods that it owns and that come back to its address."""
    pod = environment.get("POD_NAME", "tailrace")
    executors = spec.executors
    return {
        "spark.driver.host": environment.get("POD_IP", "127.0.0.1"),
        "spark.driver.bindAddress": environment.get("POD_IP", "127.0.0.1"),
        "spark.driver.port": RPC_PORT,
        "spark.driver.blockManager.port": BLOCK_PORT,
        "spark.kubernetes.namespace": environment.get("POD_NAMESPACE", "default"),
        "spark.kubernetes.driver.pod.name": pod,
        # A container that starts again in the same pod meets the executors of its last life: other names than theirs.
        "spark.app.id": f"tailrace-{boot}",
        "spark.kubernetes.executor.podNamePrefix": f"{pod[:PREFIX_CHARACTERS].rstrip('-.')}-{boot}",
        **on_demand(executors),
        # Slots, not CPUs: as in local mode, chunks get some beyond the cores, so that they never keep changes waiting.
        "spark.executor.cores": str(executors.cores + -(-spec.snapshot.parallelism // executors.most)),
        "spark.kubernetes.executor.request.cores": executors.cpu_request or str(executors.cores),
        "spark.executor.memory": f"{size(executors.memory) >> 20}m",
        "spark.executor.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{jvm_log.CONFIGURATION}"
            " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
        ),
        # Changes go on with the first executor that is there.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }


def on_demand(executors: Executors) -> dict[str, str]:
    """Spark asks for executors while tasks wait. Without a shuffle service it keeps those that hold shuffled rows: a
    large batch removes its own when it is done, and what may be left behind holds none for longer than idleness."""
    prefix = "spark.dynamicAllocation."
    times = ("executorIdleTimeout", "cachedExecutorIdleTimeout", "shuffleTracking.timeout")
    return {
        f"{prefix}enabled": "true",
        f"{prefix}shuffleTracking.enabled": "true",
        f"{prefix}minExecutors": str(executors.min),
        f"{prefix}initialExecutors": str(executors.min),
        f"{prefix}maxExecutors": str(executors.most),
        **{prefix + name: f"{IDLE_SECONDS}s" for name in times},
    }


IDLE_SECONDS = 60
"""An executor without a task for so long goes. Longer than the pauses between chunks and between the batches of a load;
a new one takes some ten seconds to come."""
PREFIX_CHARACTERS = 38
"""Spark allows 47 for an executor's name before `-exec-<number>`; the boot takes nine of them."""


def _master(spec: ReplicatorSpec, environment: Mapping[str, str]) -> str:
    given = environment.get("TAILRACE_SPARK_MASTER")
    if given is not None and (spec.executors.most or not given.startswith(KUBERNETES)):
        return given
    # A FAIR pool does not take a slot away from a running task: slots for chunks beyond the cores keep changes going.
    return f"local[{spec.driver.cores + spec.snapshot.parallelism}]"


def scratch(run_dir: Path) -> Path:
    """The folder of the JVM's temporary files. In `/tmp`, its default, each killed JVM leaves three folders and the
    native libraries that it unpacked (lz4, snappy, cryptography), which nothing removes."""
    return run_dir / "spark" / "tmp"


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


def start(spec: ReplicatorSpec, target: Target, run_dir: Path, log_file: Path, java_options: str = "") -> SparkSession:
    """Start the JVM, with `java_options` beside those of the settings; what it logs and prints goes to `log_file`. Its
    scratch files are in the run directory: a disk that is too small for them is named (`StorageFull`)."""
    try:
        return _start(spec, target, run_dir, log_file, java_options)
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


def _start(spec: ReplicatorSpec, target: Target, run_dir: Path, log_file: Path, java_options: str) -> SparkSession:
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
    try:
        context = SparkContext(conf=conf, gateway=gateway)
    except Py4JJavaError as error:
        raise _refused(spec, error) from error
    context.setLogLevel("WARN")
    target.prepare(context)
    return SparkSession(context)


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


class OnDemand:
    """The session of a run, started when it is first asked for, on a thread of its own: what happens meanwhile may end
    the run."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._session: Future[SparkSession] = Future()
        self._thread: threading.Thread | None = None
        self._over = False

    def begin(self) -> None:
        """Start it, unless that has been done."""
        with self._lock:
            if self._over:
                raise Retry("Spark is no longer started: the run ends")
            if self._thread is None:
                log.info("Spark is starting; this usually takes 5 to 20 s")
                self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            self._session.set_result(self._start())
        except BaseException as error:  # handed to who waits
            self._session.set_exception(error)

    def session(self) -> SparkSession:
        """The session, which is waited for. Raises what `start` raised."""
        self.begin()
        return self._session.result()

    def started(self, seconds: float = 0.0) -> SparkSession | None:
        """The session; None: not within that time. Raises what `start` raised."""
        return self._session.result() if wait([self._session], seconds).done else None

    def abandon(self, keep: int | None) -> None:
        """Start none from now on, and kill the JVM of one that is still on its way up. `keep`: the child process that
        is not Spark's."""
        with self._lock:
            self._over, thread = True, self._thread
        until = time.monotonic() + STOP_SECONDS
        while thread is not None and thread.is_alive() and time.monotonic() < until:
            for child in set(_children()) - {keep}:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)  # a session of its own, see `start`
            thread.join(0.2)

    def stop(self) -> None:
        """End the session that has come up."""
        if self._session.done() and self._session.exception() is None:
            stop(self._session.result())


def _children() -> Iterator[int]:
    """Processes that this one has started and that have not been waited for."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


def check(spark: SparkSession, log_file: Path) -> None:
    """Name the JVM's death: what calls into it afterwards only meets a refused connection."""
    code = spark.sparkContext._gateway.proc.poll()  # type: ignore[union-attr]  # None only where no JVM was started
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
        assert jvm.stdin is not None
        jvm.stdin.close()  # the gateway's sign to exit
        try:
            jvm.wait(patience)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
