"""The driver's Spark session: local mode on a laptop, client mode on Kubernetes, with the same settings otherwise.

Called once by the driver. Settings are a pure function, so that they can be tested and printed.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tailrace import artifacts
from tailrace.contract.resources import ReplicatorSpec
from tailrace.run.manifest import size
from tailrace.storage import hadoop_options

POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="changes"><schedulingMode>FAIR</schedulingMode><weight>4</weight><minShare>2</minShare></pool>
  <pool name="snapshot"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""
LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""
EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def settings(spec: ReplicatorSpec, run_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration. `environment` may name a master and options of the place where the driver runs
    (`TAILRACE_SPARK_MASTER`, `TAILRACE_SPARK_CONF_<NAME>` with `_` for `.`); they win."""
    memory = max(size(spec.driver.memory) >> 20, 512)
    values = {
        "spark.master": _master(spec, environment),
        "spark.app.name": "tailrace",
        "spark.jars": artifacts.spark_jars(*jar_sets(spec)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{run_dir}/log4j2.properties -Dderby.system.home={run_dir}/spark"
            " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
        ),
        "spark.local.dir": f"{run_dir}/spark",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file:{run_dir}/pools.xml",
        "spark.python.worker.reuse": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{run_dir}/warehouse",
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Optional for readers, and two thirds of a small commit's time (docs/performance.md).
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    prefix = "TAILRACE_SPARK_CONF_"
    return values | {k[len(prefix) :].replace("_", "."): v for k, v in environment.items() if k.startswith(prefix)}


def jar_sets(spec: ReplicatorSpec) -> list[str]:
    """Only what the target needs: object storage and database drivers are large."""
    catalog = spec.target.catalog
    s3 = ["s3"] if spec.target.location.startswith("s3://") else []
    return ["lake", *s3, *(["jdbc"] if catalog is not None and catalog.type == "jdbc" else [])]


def _master(spec: ReplicatorSpec, environment: Mapping[str, str]) -> str:
    given = environment.get("TAILRACE_SPARK_MASTER")
    if given is not None:
        return given
    # A FAIR pool does not take a slot away from a running task: slots for chunks beyond the cores keep changes going.
    return f"local[{spec.driver.cores + spec.snapshot.parallelism}]"


def start(spec: ReplicatorSpec, run_dir: Path, log_file: Path) -> SparkSession:
    """Start the JVM; what it prints goes to `log_file`."""
    (run_dir / "pools.xml").write_text(POOLS)
    (run_dir / "log4j2.properties").write_text(LOG4J)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = SparkConf(loadDefaults=False)
    for name, value in settings(spec, run_dir, os.environ).items():
        conf.set(name, value)
    with log_file.open("ab") as sink:
        output = {"stdout": sink, "stderr": sink, "start_new_session": True}
        # The gateway's own session: Ctrl-C is for us, the JVM is ended after the last commit.
        gateway = launch_gateway(conf, output)  # type: ignore[no-untyped-call]
    context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("WARN")
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in hadoop_options(spec.target, os.environ).items():
        hadoop.set(name, value)  # not in the configuration above: that is the JVM's command line, for all to see
    return SparkSession(context)
