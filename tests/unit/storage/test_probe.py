"""A place is tried before anything is made there, and trying it leaves nothing."""

from pathlib import Path

import pytest

from tailrace.contract.resources import StorageLocation
from tailrace.storage.access import StorageRefused
from tailrace.storage.probe import probe


def test_trying_a_place_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("new/deep/log", "kept"):
        assert probe(StorageLocation(location=f"file://{tmp_path}/{name}"), exclusive=True)
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/none", "/sys/none", "n" * 300])
def test_a_place_that_can_never_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(StorageRefused) as refused:
        probe(StorageLocation(location=f"file://{tmp_path / place}"), exclusive=True)
    assert refused.value.exit_code == 10 and str(tmp_path / place) in refused.value.message
