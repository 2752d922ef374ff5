"""The benches' Replicators are ones that a driver takes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench import backlog, commits
from tailrace.contract import manifest


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_change_log_of_the_bench_of_commits_is_beside_its_tables(format: str, tmp_path: Path) -> None:
    spec = commits.replicator(tmp_path / format, format).spec
    assert spec.target.type == format and spec.storage.location != spec.target.location


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_bench_of_a_backlog_writes_a_manifest(format: str, tmp_path: Path) -> None:
    server: Any = SimpleNamespace(host="127.0.0.1", port=5432)
    written = backlog.write_manifest(cast(Any, server), tmp_path, format)
    spec = manifest.load(written).replicator(None).spec
    assert spec.target.type == format and spec.tables.include == ("public.backlog",)
