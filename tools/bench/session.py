"""One Spark session for every stage that needs the JVM: Delta and Iceberg as the driver sets them up, and JDBC."""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace.contract.resources import Replicator
from tailrace.places import Places
from tailrace.spark import artifacts
from tailrace.spark.settings import settings
from tailrace.targets.lake.delta import classes

ICEBERG = "bench"
"""Name of the Iceberg catalog that Spark's own statements use."""


def start(replicator: Replicator, folder: Path) -> SparkSession:
    """The driver's own settings and, for the incumbents, the tuning that suited them best: two cores, 2 GiB, the JVM's
    full compiler, an Iceberg catalog over the same folder as Tailrace's."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    values = settings(replicator.spec, Places(replicator.spec).target.spark(), folder, {}) | {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}/spark -Duser.timezone=UTC",
        "spark.scheduler.mode": "FIFO",
        "spark.jars": artifacts.spark_jars("lake", "jdbc"),
        "spark.databricks.delta.merge.materializeSource": "none",
        f"spark.sql.catalog.{ICEBERG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{ICEBERG}.type": "hadoop",
        f"spark.sql.catalog.{ICEBERG}.warehouse": f"{folder}/iceberg",
        f"spark.sql.catalog.{ICEBERG}.cache-enabled": "false",
    }
    values.pop("spark.scheduler.allocation.file")
    builder: Any = SparkSession.builder
    for name, value in values.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    classes.install(session._jvm, folder / "classes")
    return session


def jvm_pid(session: SparkSession) -> int:
    jvm: Any = session._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())
