"""What Iceberg's files on a local folder cost: no processes, no files of checksums; and those of others still count."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from support.iceberg import Orders, folder_catalog, local

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def faults_of_ended_children(jvm: Any) -> str:
    """Page faults of the processes that the JVM has started and seen end: each has some."""
    stat = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text()
    return stat.rpartition(")")[2].split()[8]


def test_commits_start_no_process_and_write_no_checksum_files(spark: SparkSession) -> None:
    orders = Orders(spark)
    before = faults_of_ended_children(spark._jvm)
    for step in range(3):
        orders.apply(dict.fromkeys(range(step, step + 3), (None, f"{step}")))
    assert faults_of_ended_children(spark._jvm) == before
    written = list(local(orders.table.location).rglob("*"))
    assert not [path for path in written if path.name.endswith(".crc")]
    assert {oct(path.stat().st_mode) for path in written if path.suffix == ".avro"} == {"0o100644"}
    assert orders.read() == orders.rows


def test_checksums_of_others_are_checked_and_go_with_their_file(spark: SparkSession, tmp_path: Path) -> None:
    hadoop: Any = folder_catalog(spark).java.hadoop
    jvm: Any = spark._jvm
    there = jvm.org.apache.hadoop.fs.Path(f"{tmp_path.as_uri()}/text")
    assert not hadoop.get("fs.file.impl"), "executors get it, too, and lack the class"
    ours, theirs = there.getFileSystem(hadoop), jvm.org.apache.hadoop.fs.LocalFileSystem()
    theirs.initialize(jvm.java.net.URI("file:///"), hadoop)
    out = theirs.create(there)
    out.writeBytes("theirs")
    out.close()
    checksums = tmp_path / ".text.crc"
    assert checksums.exists()
    (tmp_path / "text").write_text("broken")
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        ours.open(there).read()
    out = ours.create(there)
    out.writeBytes("ours")
    out.close()
    assert not checksums.exists()
    assert chr(theirs.open(there).read()) == "o"
