"""The classes of Spark that every driver loads, kept as the JVM has parsed and verified them (class-data sharing).

With such an archive a driver starts in half the time (docs/performance.md). `python -m
tailrace.spark.class_archive`, a part of `make setup` and of the image's build, makes it: it starts Spark as a driver
does, has it do a little of all that a driver does, and lets the JVM write down what it has loaded. The JVM itself
checks that an archive is of its own version and classpath; a driver without one, or with a stale one, starts slower.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tailrace.contract.resources import ReplicatorSpec
from tailrace.places import Places
from tailrace.spark import artifacts, session

ARCHIVE, MADE_FOR = "classes.jsa", "spark-home"
"""The archive, and the note of what it was made from: Spark's folder, and a digest of the files in it and in Java's."""
DUMP_SECONDS = 300.0


def main() -> int:
    target = folder()
    if target is None:
        print("no Java found to create a class archive for; drivers start without it")
        return 0
    artifacts.no_spark_settings().mkdir(parents=True, exist_ok=True)  # without it the JVM refuses the archive
    if (target / ARCHIVE).exists() and (target / MADE_FOR).read_text() == _made_for():
        print(f"{target / ARCHIVE} already exists")
        return 0
    _forget_others(target.parent)
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        made.mkdir(mode=0o755)
        _make(made / ARCHIVE, Path(scratch))
        (made / MADE_FOR).write_text(_made_for())
        try:
            made.rename(target)
        except OSError:  # another run was quicker
            if not (target / ARCHIVE).exists():
                raise
    print(f"{target / ARCHIVE} created")
    return 0


def folder() -> Path | None:
    """The path of the archive of this Java and this Spark, which may not exist; None: the Java is not known."""
    try:
        release = (_java_home() / "release").read_text()
    except (OSError, IndexError):
        return None
    key = "\n".join((release, pyspark.__version__, spark_home(), str(artifacts.no_spark_settings())))
    return artifacts.cache_dir() / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def spark_home() -> str:
    """The Spark installation whose jars are on the JVM's classpath."""
    return os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)


def java_options() -> str:
    """Options for the start of the driver's JVM, in quotes: a cache may have blanks in its name."""
    place = folder()
    return f'"-XX:SharedArchiveFile={place / ARCHIVE}"' if place is not None and (place / ARCHIVE).exists() else ""


def _java_home() -> Path:
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java")
    return Path(java or "").resolve().parents[1]


def _made_for() -> str:
    """The note beside an archive. The JVM compares sizes and times of the jars on its classpath and the archive that it
    has of its own classes: with jars that were installed again it would refuse an older archive."""
    found = hashlib.sha256()
    for path in (*sorted(Path(spark_home(), "jars").glob("*.jar")), _java_home() / "lib" / "server" / ARCHIVE):
        if path.exists():
            found.update(f"{path}\0{path.stat().st_size}\0{int(path.stat().st_mtime)}\n".encode())
    return f"{spark_home()}\n{found.hexdigest()}\n"


def _forget_others(cache: Path) -> None:
    """Archives whose Spark is no longer installed."""
    for note in cache.glob(f"classes-*/{MADE_FOR}"):
        if not Path(note.read_text().partition("\n")[0]).exists():
            shutil.rmtree(note.parent, ignore_errors=True)


def _make(archive: Path, scratch: Path) -> None:
    spec = ReplicatorSpec.model_validate(
        {
            "source": {"type": "postgresql", "host": "localhost", "database": "none", "username": "none"},
            "tables": {"include": ["none.*"]},
            "target": {"type": "delta", "location": (scratch / "lake").as_uri()},
            "storage": {"location": (scratch / "log").as_uri()},
        }
    )
    run_dir, options = scratch / "run", f'"-XX:ArchiveClassesAtExit={archive}"'
    run_dir.mkdir()
    spark = session.start(spec, Places(spec).target, run_dir, run_dir / "spark.log", options)
    try:
        _exercise(spark, scratch)
    finally:
        session.stop(spark, DUMP_SECONDS)
    if not archive.exists():
        raise SystemExit(f"the JVM wrote no archive of classes:\n{(run_dir / 'spark.log').read_text()[-2000:]}")


def _exercise(spark: SparkSession, scratch: Path) -> None:
    """Load what a driver loads: SQL, Parquet, a shuffle, Python tasks, a stream with batches in Python."""
    spark.sql("SELECT id, string(id) AS s FROM range(10)").write.parquet(f"{scratch}/lake/t")
    spark.read.parquet(f"{scratch}/lake/t").groupBy("s").count().collect()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.foreachBatch(lambda rows, number: None)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    query.stop()


if __name__ == "__main__":
    sys.exit(main())
