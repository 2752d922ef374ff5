from pathlib import Path

import pyspark

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
