"""Tailrace's Java classes: what a failure to define one leaves to the next try."""

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.targets.lake.iceberg import classes


def test_a_class_that_fails_is_defined_by_the_next_try_and_the_one_before_it_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *others = classes._BESIDE
    defined: list[str] = []
    properties: dict[str, str] = {}
    broken = [True]

    def define(_: Any, source: str, beside: str) -> None:
        if source == second and broken:
            broken.clear()
            raise ValueError("does not compile")
        defined.append(source)

    monkeypatch.setattr(classes, "_define", define)
    monkeypatch.setattr(classes, "_use_for_local_folders", lambda *_: defined.append(classes.LOCAL))
    system = SimpleNamespace(getProperty=properties.get, setProperty=properties.__setitem__)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    with pytest.raises(ValueError, match="does not compile"):
        classes.ensure(jvm, None)
    for _ in range(2):
        classes.ensure(jvm, None)
    assert defined == [first, second, *others, classes.LOCAL]
