"""The downloaded jars: versions, coordinates and look-up; and the cache that holds them.

`tools/bootstrap.py` fills the cache (`make setup`); the Spark session and the tests read it through the functions
below, so a version is written down here and nowhere else (servers for demo and tests: `tools/servers.py`). Standard
library only: bootstrap imports this module with the system's Python, before any dependency is installed.

A folder's name carries what is in it (version, or a digest of the coordinates): a new version never meets an old
folder.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tailrace.errors import TailraceError

LAKE_JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
    "io.delta:delta-kernel-unitycatalog:4.4.0",
    "io.unitycatalog:unitycatalog-client:0.6.0",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
"""Delta and Iceberg for Spark 4.1. The whole list, not only its roots: what Spark already carries (Hadoop, Parquet,
Jackson, Scala, logging) must not come a second time in another version."""

AWS_SDK_VERSION = "2.57.8"
"""One SDK for both users: Iceberg 1.12 needs its Apache 5 client, hadoop-aws 3.4.2 (built on 2.29) works with it."""

AWS_SDK_MODULES = [
    "annotations",
    "apache-client",
    "apache5-client",
    "arns",
    "auth",
    "aws-core",
    "aws-json-protocol",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "kms",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
]
"""Modules of the AWS SDK that S3A and Iceberg's S3FileIO load, in place of the SDK's bundle of 500 MB. `kms` only
because a static initialiser of Iceberg names one of its enums."""

S3_JARS = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.2.1",
    "software.amazon.eventstream:eventstream:1.0.1",
    "org.reactivestreams:reactive-streams:1.0.4",
    "org.apache.httpcomponents.client5:httpclient5:5.6.4",
    "org.apache.httpcomponents.core5:httpcore5:5.4.3",
    "org.apache.httpcomponents.core5:httpcore5-h2:5.4.3",
    *(f"software.amazon.awssdk:{module}:{AWS_SDK_VERSION}" for module in AWS_SDK_MODULES),
)
"""S3 for Hadoop file systems (`s3a://`) and for Iceberg's `S3FileIO`. HTTP client 4, Netty and logging are Spark's."""

JDBC_JARS = ("org.postgresql:postgresql:42.7.14",)
"""The driver behind an Iceberg catalog of type jdbc."""

JAR_SETS: dict[str, tuple[str, ...]] = {"lake": LAKE_JARS, "s3": S3_JARS, "jdbc": JDBC_JARS}

READY = ".ready"
"""Marker file, written last inside a folder before it gets its final name."""


class ArtifactMissing(TailraceError):
    """A downloaded program or jar set is not in the cache."""


def cache_dir() -> Path:
    """The cache's root: `TAILRACE_CACHE`, else `~/.cache/tailrace`."""
    override = os.environ.get("TAILRACE_CACHE")
    return Path(override).expanduser().resolve() if override else Path.home() / ".cache" / "tailrace"


def no_spark_settings() -> Path:
    """A folder that stays empty, for `SPARK_CONF_DIR`, whether or not it is there. It is first on the JVM's classpath,
    and an archive of classes is valid for one classpath only, so all runs share it."""
    return cache_dir() / "no-spark-settings"


def jar_set_dir(name: str) -> Path:
    """The folder of a jar set, whether or not it is there."""
    if name not in JAR_SETS:
        raise ArtifactMissing(f"no jar set {name!r} is known", f"Use one of {', '.join(sorted(JAR_SETS))}.")
    return cache_dir() / f"jars-{name}-{_digest(JAR_SETS[name])}"


def jars(*names: str) -> list[Path]:
    """The jar files of the named sets, in the order of their lists (default: `lake`)."""
    found: list[Path] = []
    for name in names or ("lake",):
        folder = present(jar_set_dir(name))
        found += [folder / jar_file_name(coordinate) for coordinate in JAR_SETS[name]]
    return found


def spark_jars(*names: str) -> str:
    """The value of `spark.jars` for the named jar sets.

    `local:` says that an executor finds them under the same path: without it even the one in the driver's own JVM
    fetches 60 MB over the encrypted connection at each start. A path that a URL would have to encode stays bare, for
    Spark decodes `local:` once too often.
    """
    return ",".join(f"local:{path}" if quote(str(path)) == str(path) else str(path) for path in jars(*names))


def jar_file_name(coordinate: str) -> str:
    """`group:artifact:version` is stored as `artifact-version.jar`."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def is_ready(folder: Path) -> bool:
    """True if bootstrap finished this folder."""
    return (folder / READY).exists()


def present(folder: Path) -> Path:
    """The folder, or `ArtifactMissing` with the way to get it."""
    if not is_ready(folder):
        raise ArtifactMissing(f"{folder} is missing or incomplete", "Run `make setup`, or set TAILRACE_CACHE.")
    return folder


def _digest(coordinates: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(coordinates)).encode()).hexdigest()[:12]
