"""Spark's needs for the lake: jars, settings, access to the bucket.

`spark.session` asks for it through `LakeTarget`.
"""

import os
from typing import Any

from tailrace.contract import resources
from tailrace.storage.access import hadoop_options
from tailrace.targets.api import SparkNeeds
from tailrace.targets.lake.delta import classes

SETTINGS = {
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Optional for readers, and larger than a commit. Where Delta commits, what it needs of it stays in memory.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    # Otherwise Delta's checksums list the table's files, for which a new or opened table is queried by Spark.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    **classes.SETTINGS,
}
"""Settings for both formats: one archive of classes serves them."""


def needs(target: resources.TargetSpec) -> SparkNeeds:
    """Only what the target needs: object storage and database drivers are large."""
    s3 = ["s3"] if target.lake.location.startswith("s3://") else []
    jdbc = ["jdbc"] if target.catalog is not None and target.catalog.type == "jdbc" else []
    return SparkNeeds(("lake", *s3, *jdbc), SETTINGS)


def prepare(target: resources.TargetSpec, hadoop: Any) -> None:
    for name, value in hadoop_options(target.lake, os.environ).items():
        hadoop.set(name, value)  # not in the session's settings: they are the JVM's command line, for all to see
