"""Which archive of classes a driver's JVM is started with."""

import os
from pathlib import Path

import pytest

from tailrace.spark import artifacts, class_archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `release` file of a Java of our own, and a cache of our own."""
    (tmp_path / "java" / "bin").mkdir(parents=True)
    release = tmp_path / "java" / "release"
    release.write_text('JAVA_VERSION="17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return release


def archive() -> Path:
    folder = class_archive.folder()
    assert folder is not None
    folder.mkdir(parents=True)
    (folder / class_archive.MADE_FOR).write_text(f"{class_archive.spark_home()}\nof jars that were there once\n")
    (folder / class_archive.ARCHIVE).touch()
    return folder / class_archive.ARCHIVE


def test_a_driver_takes_the_archive_of_its_own_java_and_spark_only(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_archive.java_options() == ""
    made = archive()
    assert class_archive.java_options() == f'"-XX:SharedArchiveFile={made}"'
    java.write_text('JAVA_VERSION="17.0.16"')
    assert class_archive.java_options() == ""
    java.write_text('JAVA_VERSION="17.0.15"')
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    assert class_archive.java_options() == ""


def test_a_java_that_does_not_tell_its_release_starts_without(java: Path) -> None:
    java.unlink()
    assert class_archive.folder() is None
    assert class_archive.java_options() == ""
    assert class_archive.main() == 0


def test_an_archive_is_made_once_and_those_of_removed_sparks_go(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/removed")
    removed = archive()
    monkeypatch.setenv("SPARK_HOME", str(java.parent))
    kept = archive()
    monkeypatch.setenv("SPARK_HOME", str(java.parents[1]))
    monkeypatch.setattr(class_archive, "_make", lambda archive, scratch: archive.touch())
    assert class_archive.main() == 0
    made = class_archive.java_options()
    assert made.endswith(f'{class_archive.ARCHIVE}"')
    assert not removed.parent.exists() and kept.exists()
    monkeypatch.setattr(class_archive, "_make", lambda archive, scratch: pytest.fail("made twice"))
    assert class_archive.main() == 0
    assert class_archive.java_options() == made


def test_an_archive_of_jars_that_were_installed_again_is_made_again(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (java.parent / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(java.parent))
    jar = java.parent / "jars" / "spark.jar"
    jar.touch()
    made = list[Path]()

    def make(archive: Path, scratch: Path) -> None:
        archive.touch()
        made.append(archive)

    monkeypatch.setattr(class_archive, "_make", make)
    for modified in (1, 1, 2):
        os.utime(jar, (modified, modified))
        assert class_archive.main() == 0
    assert len(made) == 2
    assert artifacts.no_spark_settings().is_dir(), "on the classpath for which it is made"
