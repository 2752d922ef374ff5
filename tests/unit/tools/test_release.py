"""Every place that names the version names the same one; a release begins with this look."""

import shutil
from pathlib import Path

import pytest

import release
import tailrace


def test_every_place_names_the_present_version() -> None:
    assert list(release.differing(release.ROOT, tailrace.__version__)) == []


@pytest.mark.parametrize("place", release.PLACES)
def test_a_place_that_was_forgotten_is_named(tmp_path: Path, place: str) -> None:
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    forgotten = tmp_path / place
    forgotten.write_text(forgotten.read_text().replace(tailrace.__version__, "0.0.9"))
    found = list(release.differing(tmp_path, tailrace.__version__))
    assert found
    assert {line.partition(":")[0] for line in found} == {place}
