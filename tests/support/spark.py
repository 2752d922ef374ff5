"""The tests' Spark session: local, small, on loopback only, with Delta and Iceberg."""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tailrace
from support.s3 import S3Server
from tailrace.spark import artifacts
from tailrace.spark.settings import SMALL_STEPS
from tailrace.targets.lake import spark as lake
from tailrace.targets.lake.delta import classes

S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def settings(folder: Path) -> dict[str, str]:
    """Spark's configuration; the Iceberg catalog `iceberg` keeps its tables under `folder/iceberg`."""
    return {
        "spark.jars": artifacts.spark_jars("lake", "s3", "jdbc"),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(Path(tailrace.__file__).parents[1]),
        # The compiler of long runs costs a short one more than it brings: 12 of 35 CPU seconds for one test.
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.local.dir": str(folder / "local"),
        "spark.scheduler.mode": "FAIR",
        # To compile a query costs more than a few rows bring.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.cache-enabled": "false",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": str(folder / "iceberg"),
        "spark.sql.session.timeZone": "UTC",
        # VACUUM lists a table's folder with so many tasks, and Spark's default is ten thousand.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **SMALL_STEPS,
        **lake.SETTINGS,
    }


def start_session(folder: Path) -> SparkSession:
    """Start (or get) the JVM; two cores, one GiB. Python tasks run in this interpreter, not in the PATH's."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("tailrace-tests")
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    jvm: Any = session._jvm
    classes.install(jvm, folder / "classes")
    jvm.java.lang.System.setProperty(classes.CLASS, "installed")
    return session


def use_bucket(session: SparkSession, s3: S3Server) -> None:
    """Let the running session read and write `s3a://<the server's current bucket>/`, and `s3://…` as Delta does."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in {"fs.s3.impl": S3A, **s3.hadoop_settings()}.items():
        hadoop.set(name, value)


def by_spark(spark: SparkSession, format: str, place: Path, order: str = "id") -> list[dict[str, Any]]:
    """The rows of the table in the folder."""
    if format == "delta":
        name = f"delta.`{place}`"
    else:
        catalog = f"read{abs(hash(place))}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        settings = {"type": "hadoop", "cache-enabled": "false", "warehouse": str(place.parents[1])}
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{catalog}.{key}", value)
        name = f"{catalog}.public.t"
    return list(spark.sql(f"SELECT * FROM {name} ORDER BY {order}").toArrow().to_pylist())
