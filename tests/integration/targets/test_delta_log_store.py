"""Two processes that write the same versions to a Delta log at the same moment: each version has one writer."""

import threading
from pathlib import Path

from support.log_store import Writer
from support.s3 import S3Server
from tailrace.targets.lake.delta.classes import CLASS

VERSIONS = 80


def _race(folder: Path, kind: str, place: str, files: Path, hadoop: dict[str, str]) -> list[str]:
    """What is wrong with the versions that two processes wrote."""
    faults = []
    with Writer(kind, folder / "one", hadoop) as one, Writer(kind, folder / "other", hadoop) as other:
        assert [one.answer(), other.answer()] == ["ready", "ready"]
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


def test_of_two_processes_each_version_on_a_local_folder_has_one_writer(tmp_path: Path) -> None:
    log = tmp_path / "a table, 100%" / "_delta_log"
    log.mkdir(parents=True)
    assert _race(tmp_path, CLASS, f"file://{log}", log, {}) == []
    assert sorted(path.name for path in log.iterdir()) == [f"{number:020d}.json" for number in range(VERSIONS)]


def test_of_two_processes_each_version_on_s3_has_one_writer(s3: S3Server, tmp_path: Path) -> None:
    hadoop = s3.hadoop_settings() | {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    files = s3.root / s3.bucket / "t" / "_delta_log"
    assert _race(tmp_path, CLASS, f"s3://{s3.bucket}/t/_delta_log", files, hadoop) == []


def test_a_reader_finds_the_former_pointer_to_the_last_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    place = tmp_path / "_last_checkpoint"
    place.write_text("one\n")
    found: set[str] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            found.add(place.read_text())

    reader = threading.Thread(target=read)
    with Writer(CLASS, tmp_path / "other", {}) as other:
        assert other.answer() == "ready"
        reader.start()
        for _ in range(300):
            other.tell(f"replace file://{place}")
            assert other.answer() == "wrote"
        over.set()
        reader.join()
    assert found == {"one\n", "other\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_last_checkpoint", "other"]
