"""The demo's own folder."""

from pathlib import Path

from demo.__main__ import empty


def test_the_demo_empties_its_own_folder_and_nobody_else_s(tmp_path: Path) -> None:
    own, foreign = tmp_path / "a" / "own", tmp_path / "foreign"
    assert empty(own)
    (own / "lake").mkdir()
    assert empty(own)
    assert not (own / "lake").exists()
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    assert not empty(foreign)
    assert not empty(foreign / "thesis.txt")
    assert (foreign / "thesis.txt").exists()
