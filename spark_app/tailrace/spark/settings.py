"""The configuration of the driver's Spark session: local mode on a laptop, client mode on Kubernetes, with the same
settings otherwise. Pure, so that it can be tested and printed. Called by `spark.session`.
"""

from collections.abc import Mapping
from pathlib import Path

from tailrace.contract.pods import Executors
from tailrace.contract.resources import ReplicatorSpec
from tailrace.contract.units import size
from tailrace.errors import InvalidManifest, privacy
from tailrace.selection import masking
from tailrace.spark import artifacts, jvm_log
from tailrace.targets.api import SparkNeeds

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
