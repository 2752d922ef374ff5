"""Where Spark is told to find the jars."""

from pathlib import Path

import pytest

from tailrace.spark import artifacts


@pytest.mark.parametrize(("cache", "scheme"), [("cache", "local:"), ("a cache", ""), ("größe", "")])
def test_an_executor_reads_the_jars_where_they_are_unless_spark_would_misread_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str, scheme: str
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / cache))
    folder = artifacts.jar_set_dir("jdbc")
    with pytest.raises(artifacts.ArtifactMissing, match="make setup"):
        artifacts.spark_jars("jdbc")
    folder.mkdir(parents=True)
    (folder / artifacts.READY).touch()
    assert folder.is_relative_to(tmp_path / cache)
    assert artifacts.spark_jars("jdbc") == f"{scheme}{folder}/postgresql-42.7.14.jar"
