"""Which archive of classes a driver's JVM is started with."""

import shutil
from pathlib import Path

import pytest

from tailrace.spark import class_archive, settings


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
    (folder / class_archive.MADE_FOR).write_text(class_archive.spark_home())
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


def test_an_archive_of_the_same_is_kept_across_builds(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Path]()
    kept, jar = java.parents[1] / "kept", java.parents[1] / "jars" / "spark.jar"
    for folder in (kept, jar.parent):
        folder.mkdir()
    jar.write_text("1")

    def make(archive: Path, scratch: Path) -> None:
        made.append(archive)
        archive.write_text(str(len(made)))

    def built() -> tuple[str, int]:
        """With nothing left of the build before."""
        folder = class_archive.folder()
        assert folder is not None
        shutil.rmtree(folder, ignore_errors=True)
        assert class_archive.main(kept) == 0
        return (folder / class_archive.ARCHIVE).read_text(), len(list(kept.iterdir()))

    monkeypatch.setattr(class_archive, "_make", make)
    assert [built(), built()] == [("1", 1), ("1", 1)]
    jar.write_text("22")
    assert [built(), built()] == [("2", 1), ("2", 1)]
    changed = java.parents[1] / "settings.py"
    changed.touch()
    monkeypatch.setattr(settings, "__file__", str(changed))  # Java's options are in it
    assert built() == ("3", 1)


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
