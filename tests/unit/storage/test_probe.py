"""A place is tried before anything is made there, and trying it leaves nothing."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.contract.resources import StorageLocation
from tailrace.storage.access import StorageRefused
from tailrace.storage.probe import PROBES, probe, require_exclusive
from tailrace.storage.store import Storage


def test_trying_a_place_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("new/deep/log", "kept"):
        assert probe(StorageLocation(location=f"file://{tmp_path}/{name}"), exclusive=True)
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_several_that_try_a_place_at_the_same_time_leave_nothing_either(tmp_path: Path) -> None:
    """Driver and capture do, as they start: each finds folders that another one is just making, or taking away."""
    place = StorageLocation(location=f"file://{tmp_path}/new/deep")
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            assert all(pool.map(lambda _: probe(place, exclusive=True), range(8)))
            assert list(tmp_path.rglob(PROBES)) == []


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/none", "/sys/none", "n" * 300])
def test_a_place_that_can_never_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(StorageRefused) as refused:
        probe(StorageLocation(location=f"file://{tmp_path / place}"), exclusive=True)
    assert refused.value.exit_code == 10 and str(tmp_path / place) in refused.value.message


def test_what_killed_probes_left_goes_with_the_next_one_and_what_another_is_trying_stays(tmp_path: Path) -> None:
    storage = Storage.open(StorageLocation(location=f"file://{tmp_path}"))
    require_exclusive(storage)
    assert list(tmp_path.iterdir()) == []
    storage.put(f"{PROBES}killed", b"first")
    os.utime(tmp_path / PROBES / "killed", (1, 1))
    require_exclusive(storage)
    assert list(tmp_path.iterdir()) == []
    storage.put(f"{PROBES}killed", b"first")
    os.utime(tmp_path / PROBES / "killed", (1, 1))
    storage.put(f"{PROBES}another", b"first")
    assert probe(StorageLocation(location=f"file://{tmp_path}"), exclusive=True)
    assert [path.name for path in (tmp_path / PROBES).iterdir()] == ["another"]
    assert (tmp_path / PROBES / "another").stat().st_mtime > time.time() - 60
