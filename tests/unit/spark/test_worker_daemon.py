import subprocess
import sys
from pathlib import Path

import pyspark

from support.proof.process import ENVIRONMENT
from tailrace.spark.worker_daemon import without_archives

ARCHIVES = ["/spark/python/lib/pyspark.zip", "/spark/jars/spark-core.jar"]


def test_archives_leave_the_path_where_pyspark_is_installed() -> None:
    site = str(Path(pyspark.__file__).parents[1])
    assert without_archives([*ARCHIVES, "/somewhere", site]) == ["/somewhere", site]


def test_archives_stay_where_pyspark_is_only_in_them(tmp_path: Path) -> None:
    path = [*ARCHIVES, str(tmp_path)]
    assert without_archives(path) == path


def test_somebody_else_s_archive_stays(tmp_path: Path) -> None:
    site, theirs = str(Path(pyspark.__file__).parents[1]), tmp_path / "theirs.zip"
    theirs.write_bytes(b"")
    assert without_archives([*ARCHIVES, str(theirs), site]) == [str(theirs), site]


def test_a_chunk_s_task_imports_nothing_that_the_daemon_has_not() -> None:
    """Each worker would import it again."""
    script = """
import sys, pyspark.daemon
from tailrace.spark import worker_daemon
worker_daemon.import_for_tasks()
had = set(sys.modules)
import tailrace.reading.task
print(*sorted(set(sys.modules) - had))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert set(done.stdout.split()) <= {"tailrace.reading", "tailrace.reading.task"}
