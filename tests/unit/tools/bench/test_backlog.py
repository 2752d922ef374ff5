"""The bench of a backlog: its manifest is one that a driver takes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import backlog
from tailrace.contract import manifest


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_manifest_names_the_format_and_the_table(format: str, tmp_path: Path) -> None:
    server: Any = SimpleNamespace(host="127.0.0.1", port=5432)
    spec = manifest.load(backlog.write_manifest(server, tmp_path, format)).replicator(None).spec
    assert spec.target.type == format and spec.tables.include == ("public.backlog",)
