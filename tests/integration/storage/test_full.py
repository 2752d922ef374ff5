"""A full disk, made of a small file system in memory (mounted as root): named, with its place and what to do."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from support.dropping import OWNER, applied_tables, drop, journal, manifest, storage_of
from support.origins import origin
from support.scripted import ScriptedSource
from support.scripted_database import Database
from tailrace import sources
from tailrace.changelog.paths import SEGMENTS
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.faults import fault_of
from tailrace.contract.resources import ReplicatorSpec, StorageLocation, StorageSpec
from tailrace.driver.asking.doctor import _place
from tailrace.driver.process.supervise import CaptureProcess
from tailrace.errors import MAKE_ROOM, ROOM_FIRST, OutcomeUnknown, Retry, StorageFull
from tailrace.places import Places
from tailrace.storage.store import Storage


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """4 MiB, of which one page is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        with (disk / "filler").open("wb") as filler:
            filler.write(bytes((4 << 20) - 2 * os.sysconf("SC_PAGESIZE")))
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)  # a JVM may just be ending


def test_a_write_without_room_is_named_with_its_place_and_leaves_nothing(full: Path) -> None:
    storage = Storage.open(StorageLocation(location=f"file://{full}"))
    with pytest.raises(StorageFull, match=f"{full}/journal.*No space left") as caught:
        storage.create("journal", bytes(1 << 20))
    assert caught.value.fix == MAKE_ROOM
    assert isinstance(caught.value, OutcomeUnknown), "it is read back before it is written again"
    with pytest.raises(StorageFull), storage.open_output("segment") as output:
        output.write(bytes(1 << 20))
    with pytest.raises(StorageFull, match=f"{full}/segment"), storage.open_output("segment") as output:
        for _ in range(200):
            output.write(bytes(100))
    assert sorted(path.name for path in full.iterdir()) == ["filler"]


def test_doctor_is_not_ready_while_a_disk_is_full(full: Path) -> None:
    """A file of a few bytes finds room in a page that is left."""
    spec = SimpleNamespace(storage=StorageSpec(location=f"file://{full}"))
    (line,) = _place(Places(cast(ReplicatorSpec, spec)), "storage")
    assert (line.level, line.fix) == ("fail", MAKE_ROOM) and "StorageFull" in line.message


def test_a_quota_and_java_s_own_text_are_told_as_the_same() -> None:
    quota = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/lake/x")
    retried = Retry("committing s.t: java.io.IOException")
    retried.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (quota, retried):
        fault = fault_of(error, 1.0)
        assert (fault.name, fault.fix) == ("StorageFull", MAKE_ROOM)
    assert fault_of(Retry("no route"), 1.0).name == "Retry"


def test_a_drop_on_a_full_disk_names_it_and_removes_what_can_be_removed(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the change log made in the source goes although the log cannot be released, and with `--data` its own files
    make the room that the deletion needs."""
    database = Database([])
    monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(database))
    monkeypatch.setattr(JournalWriter, "claim", partial(JournalWriter.claim, patience=0.2))
    (full / "filler").unlink()
    database.readers["log"] = 1
    journal(full / "log", origin("log", OWNER), *applied_tables())
    storage_of(full / "log").put(f"{SEGMENTS}t1/1-2-f.parquet", bytes(1 << 20))
    with (full / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(os.sysconf("SC_PAGESIZE")))
    path = manifest(tmp_path, {"host": "scripted"}, storage={"location": f"file://{full}/log"})
    assert drop(path) == 1
    error = capsys.readouterr().err
    assert f"StorageFull: journal record 6 was begun and not finished by this writer: file://{full}/log" in error
    assert MAKE_ROOM in error
    assert database.readers == {}
    assert drop(path, "--data") == 0
    assert [path.name for path in full.iterdir()] == ["filler"]


def test_a_run_directory_without_room_ends_a_start_by_name(full: Path) -> None:
    """Each of its files in turn is the one that finds no room."""
    path = manifest(full.parent, {"host": "127.0.0.1", "port": 1}, storage={"location": f"file://{full.parent}/log"})
    page = os.sysconf("SC_PAGESIZE")
    for pages in range(8):
        with (full / "filler").open("wb") as filler:
            filler.write(bytes((4 << 20) - (pages + 1) * page))
        run = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(path), "--run-dir", str(full / "run")]
        ended = subprocess.run([*run, "--once"], capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in ended.stderr, ended.stderr
        named = f"StorageFull: {full}/run" in ended.stderr and ROOM_FIRST in ended.stderr
        if not named:
            break
        assert ended.returncode == 1
        shutil.rmtree(full / "run")
    assert pages >= 3, "token, address, manifest, process id"


def test_capture_is_started_again_while_the_run_directory_is_full_and_says_why_it_ended(full: Path) -> None:
    """Its last words have their room from its start on."""
    words = StorageFull("file:///log: No space left on device", MAKE_ROOM)
    program = (
        "import os, sys, time; from pathlib import Path; from tailrace.capture import last_fault;"
        " from tailrace.errors import StorageFull; from tailrace.contract.faults import fault_of;"
        f" path = Path({str(full / 'capture-fault.json')!r}); last_fault.reserve(path);"
        f" filler = open({str(full / 'filler')!r}, 'ab', buffering=0)\n"
        "try:\n  while True: filler.write(bytes(4096))\nexcept OSError: pass\n"
        f"last_fault.leave(path, fault_of(StorageFull({words.message!r}, {words.fix!r}), 1.0)); sys.exit(1)"
    )
    now = [0.0]
    (full / "filler").unlink()
    command = [sys.executable, "-c", program, "tailrace.capture.process", str(full)]
    capture = CaptureProcess(command, full, lambda: False, lambda: now[0])
    capture.start()
    for count in (1, 2, 3):
        child = capture._child
        assert child is not None and child.wait(60) == 1
        capture.check()
        fault = capture.fault
        assert fault is not None and (fault.name, fault.fix, fault.count) == ("StorageFull", MAKE_ROOM, count)
        now[0] += 60
        capture.check()
    capture.stop()


def test_spark_that_finds_no_room_for_its_scratch_files_is_told_as_a_full_disk(full: Path) -> None:
    """It copies its jars there."""
    (full / "filler").write_bytes(bytes(2 << 20))
    path = manifest(full.parent, {"host": "127.0.0.1"})
    program = (
        "from pathlib import Path; from tailrace.contract import manifest; from tailrace.places import Places;"
        f" from tailrace.spark import session; run = Path({str(full)!r});"
        f" spec = manifest.load(Path({str(path)!r})).replicator(None).spec;"
        " session.start(spec, Places(spec).target, run, run / 'spark.log')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    *_, last = ended.stderr.splitlines()
    assert f"StorageFull: Spark cannot start in {full}: No space left on device. Fix: {ROOM_FIRST}" in last
