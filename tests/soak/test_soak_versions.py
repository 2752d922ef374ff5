"""Copies with all versions of their rows, over many random logs, in every target, against the plain rule."""

from pathlib import Path

import pytest
from integration.targets.conftest import mysql_of_module, subject
from integration.targets.test_kept_versions import EACH, check

from support.conforming import Subject

__all__ = ["mysql_of_module", "subject"]

SEEDS = 24


@EACH
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_it_has_all_versions_of_each_log(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    _, ended, _ = check(subject, tmp_path, monkeypatch, seed)
    assert ended > 5
