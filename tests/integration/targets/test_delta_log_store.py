"""Two processes that write the same versions to a Delta log at the same moment: each version has one writer."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.log_store import Writer
from support.s3 import S3Server
from tailrace.targets.lake.delta.classes import CLASS

VERSIONS = 40


@pytest.fixture(scope="module")
def writers(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Writer, Writer]]:
    folder = tmp_path_factory.mktemp("writers")
    s3_server.new_bucket()
    hadoop = s3_server.hadoop_settings() | {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    with Writer(CLASS, folder / "one", hadoop) as one, Writer(CLASS, folder / "other", hadoop) as other:
        assert [one.answer(), other.answer()] == ["ready", "ready"]
        yield one, other


def _race(writers: tuple[Writer, Writer], place: str, files: Path) -> list[str]:
    """What is wrong with the versions that two processes wrote."""
    faults = []
    one, other = writers
    for number in range(VERSIONS):
        name = f"{number:020d}.json"
        for writer in (one, other) if number % 2 else (other, one):
            writer.tell(f"{place}/{name}")
        answers = {"one": one.answer(), "other": other.answer()}
        winners = [name for name, answer in answers.items() if answer == "wrote"]
        if sorted(answers.values()) != ["taken", "wrote"] or (files / name).read_text() != f"{winners[0]}\n":
            faults.append(f"{number}: {answers}")
    # A request that is repeated after a lost answer meets its own version.
    for writer in (one, other):
        writer.tell(f"{place}/{name}")
    again = {"one": one.answer(), "other": other.answer()}
    if again != answers:
        faults.append(f"repeated: {again}, at first {answers}")
    return faults


def test_of_two_processes_each_version_on_a_local_folder_has_one_writer(
    writers: tuple[Writer, Writer], tmp_path: Path
) -> None:
    log = tmp_path / "a table, 100%" / "_delta_log"
    log.mkdir(parents=True)
    assert _race(writers, f"file://{log}", log) == []
    assert sorted(path.name for path in log.iterdir()) == [f"{number:020d}.json" for number in range(VERSIONS)]


def test_of_two_processes_each_version_on_s3_has_one_writer(
    writers: tuple[Writer, Writer], s3_server: S3Server
) -> None:
    bucket = s3_server.bucket
    assert _race(writers, f"s3://{bucket}/t/_delta_log", s3_server.root / bucket / "t" / "_delta_log") == []


def test_a_reader_finds_the_former_pointer_to_the_last_checkpoint_or_the_new_one(
    writers: tuple[Writer, Writer], tmp_path: Path
) -> None:
    place = tmp_path / "_last_checkpoint"
    place.write_text("former\n")
    found: set[str] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            found.add(place.read_text())

    reader, writer = threading.Thread(target=read), writers[1]
    reader.start()
    for _ in range(150):
        writer.tell(f"replace file://{place}")
        assert writer.answer() == "wrote"
    over.set()
    reader.join()
    assert found == {"former\n", "other\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["_last_checkpoint"]
