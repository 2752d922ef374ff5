"""The tests' Spark session reads and writes both lake formats."""

import json
import subprocess
import sys
from pathlib import Path
from zipimport import zipimporter

import pytest
from pyspark.sql import SparkSession

from tailrace.spark import artifacts, session, settings

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_delta_and_iceberg_tables_return_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    delta = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {delta} USING delta AS SELECT id FROM range(10)")
    spark.sql("CREATE TABLE iceberg.probe.t USING iceberg TBLPROPERTIES ('format-version' = '3') AS SELECT 1L AS id")
    spark.sql("INSERT INTO iceberg.probe.t SELECT id FROM range(10, 17)")
    spark.sql(f"DELETE FROM {delta} WHERE id < 4")
    spark.sql("DELETE FROM iceberg.probe.t WHERE id < 14")
    assert spark.table(delta).count() == 6
    assert spark.table("iceberg.probe.t").count() == 3


def test_a_python_worker_has_no_archive_on_its_path_to_read_before_each_task(spark: SparkSession) -> None:
    def archives(number: int) -> tuple[list[str], list[str], str]:
        zips = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
        return (
            [path for path in sys.path if path.endswith((".zip", ".jar"))],
            zips,
            sys.modules["pyspark"].__file__ or "",
        )

    for paths, zips, pyspark in spark.sparkContext.parallelize([1, 2], 2).map(archives).collect():
        assert not paths and not zips
        assert Path(pyspark).is_file()


DIES = """
import json, os, signal, sys
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.places import Places
from tailrace.spark import session
run_dir = Path(sys.argv[1])
spec = ReplicatorSpec.model_validate_json(sys.argv[2])
spark = session.start(spec, Places(spec).target, run_dir, run_dir / "spark.log")
assert spark.range(10).repartition(2).count() == 10
java = spark._jvm.java.lang.System.getProperty
buffer = spark.sparkContext._jsc.hadoopConfiguration().get("hadoop.tmp.dir")
print(json.dumps([java("java.io.tmpdir"), buffer]))
sys.stdout.flush()
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
os._exit(0)
"""


def test_what_a_killed_jvm_leaves_is_in_the_run_directory_and_the_next_start_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the run directory and the cache are called: the JVM's options name files in them."""
    run_dir, cache = tmp_path / "a run's directory", tmp_path / "a cache"
    run_dir.mkdir()
    cache.mkdir()
    for folder in artifacts.cache_dir().glob("*-*-*"):
        (cache / folder.name).symlink_to(folder)
    monkeypatch.setenv("TAILRACE_CACHE", str(cache))
    artifacts.no_spark_settings().unlink()
    artifacts.no_spark_settings().mkdir()
    (artifacts.no_spark_settings() / "spark-defaults.conf").write_text("spark.locality.wait none of ours\n")
    spec = {
        "source": {"type": "postgresql", "host": "localhost", "database": "d", "username": "u"},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"{tmp_path.as_uri()}/lake"},
        "storage": {"location": f"{tmp_path.as_uri()}/log"},
    }
    command = [sys.executable, "-c", DIES, str(run_dir), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    scratch = str(settings.scratch(run_dir))
    assert json.loads(done.stdout) == [scratch, f"{scratch}/hadoop"]
    left = {path.name.partition("-")[0] for path in Path(scratch).iterdir()}
    assert {"spark", "artifacts"} <= left
    assert (run_dir / "spark.log").exists()
    session.forget_leftovers(run_dir)
    assert not list((run_dir / "spark").iterdir())


SAYS = """
import json, sys, urllib.request
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.places import Places
from tailrace.spark import class_archive, session
run_dir, options = Path(sys.argv[1]), class_archive.java_options()
assert options, "make setup has made no archive"
spec = ReplicatorSpec.model_validate_json(sys.argv[2])
spark = session.start(spec, Places(spec).target, run_dir, run_dir / "spark.log", options)
conf = spark.sparkContext.getConf()
names = ("spark.network.timeout", "spark.authenticate", "spark.eventLog.overwrite", "spark.executor.memoryOverhead")
print(json.dumps([conf.get(name) for name in names]))
assert spark.sparkContext.parallelize(range(8), 2).count() == 8
address = spark.sparkContext.uiWebUrl
with urllib.request.urlopen(f"{address}/api/v1/applications", timeout=60) as answer:
    print(json.dumps([address.rsplit(":", 1)[0], [one["name"] for one in json.load(answer)]]))
session.stop(spark)
"""


def test_a_users_settings_reach_spark_beside_tailraces_own_and_show_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the spec alone, which refuses some. And the JVM uses the archive of classes: it is valid for one
    classpath, and the first place on that is where Spark's own settings would be. Spark's UI and its event log are set
    as in docs/operations.md, "Looking into Spark"."""
    events = tmp_path / "events"
    events.mkdir()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.eventLog.overwrite=true pyspark-shell")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.executor.memoryOverhead 1g\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    spec = {
        "source": {"type": "postgresql", "host": "localhost", "database": "d", "username": "u"},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"{tmp_path.as_uri()}/lake"},
        "storage": {"location": f"{tmp_path.as_uri()}/log"},
        "sparkConf": [
            {"name": "spark.network.timeout", "value": "301s"},
            {"name": "spark.ui.enabled", "value": "true"},
            {"name": "spark.eventLog.enabled", "value": "true"},
            {"name": "spark.eventLog.dir", "value": events.as_uri()},
            {"name": "spark.eventLog.compress", "value": "false"},
        ],
    }
    command = [sys.executable, "-c", SAYS, str(tmp_path), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    settings, ui = map(json.loads, done.stdout.splitlines()[-2:])
    assert settings == ["301s", "true", None, None]
    assert "Unable to use shared archive" not in (tmp_path / "spark.log").read_text()
    assert ui == ["http://127.0.0.1", ["tailrace"]]
    documents = [json.loads(line) for path in events.rglob("events_*") for line in path.read_text().splitlines()]
    kinds = [document["Event"] for document in documents]
    assert kinds.count("SparkListenerJobEnd") == 1 and kinds[-1] == "SparkListenerApplicationEnd"


REFUSED = """
import json, sys
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import TailraceError
from tailrace.places import Places
from tailrace.spark import session
run_dir, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
launch, jvms = session.launch_gateway, []
def launched_once(*arguments):
    jvms[:] = jvms or [launch(*arguments)]
    return jvms[0]
session.launch_gateway = launched_once
for name, value in json.loads(sys.argv[3]):
    said = ReplicatorSpec.model_validate({**spec, "sparkConf": [{"name": name, "value": value}]})
    try:
        session.start(said, Places(said).target, run_dir, run_dir / "spark.log")
    except TailraceError as error:
        print(json.dumps([error.exit_code, error.message, error.fix]))
"""


def test_what_spark_refuses_of_a_users_settings_is_said(tmp_path: Path) -> None:
    """By one JVM for all."""
    spec = {
        "source": {"type": "postgresql", "host": "localhost", "database": "d", "username": "u"},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"{tmp_path.as_uri()}/lake"},
        "storage": {"location": f"{tmp_path.as_uri()}/log"},
    }
    expected = {
        ("spark.memory.fraction", "seven"): (2, "seven"),
        ("spark.network.timeout", "1s"): (2, "spark.executor.heartbeatInterval"),
        ("spark.task.cpus", "50"): (1, "cpus per task = 50"),
    }
    command = [sys.executable, "-c", REFUSED, str(tmp_path), json.dumps(spec), json.dumps(list(expected))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    told = done.stdout.splitlines()[-len(expected) :]
    for line, (code, said) in zip(told, expected.values(), strict=True):
        exit_code, message, fix = json.loads(line)
        assert exit_code == code and said in message and "sparkConf" in fix, line
