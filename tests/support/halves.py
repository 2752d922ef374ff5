"""Two workers of one run that collect the same folder from its two ends: each compiles half of the files.

All workers collect all files at the same time, and without bytecode each would compile them all: 10 CPU seconds for the
unit tests' alone. A file that another worker has compiled is read.
"""

import os
from collections.abc import Generator
from itertools import groupby
from pathlib import Path

import pytest


def wanted(config: pytest.Config) -> bool:
    """Whether this is every second worker, and all tests are those of one folder."""
    odd = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    return odd and len(config.args) == 1 and Path(config.args[0]).is_dir()


class Backwards:
    """A plugin that collects from the end; the tests' order stays the same."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory) and report.result:
            report.result.reverse()
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
        items[:] = [item for file in reversed(files) for item in file]
