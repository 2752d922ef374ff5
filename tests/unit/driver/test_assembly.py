from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.apply.progress import Progress
from tailrace.changelog.state import LogState
from tailrace.contract.pace import AT_ONCE
from tailrace.contract.pods import DriverPod
from tailrace.driver import assembly
from tailrace.targets.api import Runtime


def test_a_target_can_have_itself_compared_with_the_source_before_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    rooms: list[int] = []
    monkeypatch.setattr(assembly, "ChunkExecutors", lambda *given: rooms.append(given[3]))
    given: list[Runtime] = []

    def units(run: Runtime) -> Any:
        given.append(run)
        return SimpleNamespace(group=lambda: None)

    places = SimpleNamespace(
        target=SimpleNamespace(units=units, limits=None),
        storage=None,
        source=None,
        require_other_database=lambda: asked.append("compared"),
    )
    folder = SimpleNamespace(socket="s", checkpoint="c", path=Path("run"))
    spec = SimpleNamespace(
        source=SimpleNamespace(type="mysql"),
        snapshot=SimpleNamespace(parallelism=1),
        driver=DriverPod(memory="512Mi", scratch="2Gi"),
    )
    live = SimpleNamespace(spec=spec)
    nothing = cast(Any, SimpleNamespace(session=None, jvm=None, begin=None, state=LogState()))
    parts = assembly.parts(
        cast(Any, live),
        cast(Any, folder),
        Progress(),
        cast(Any, places),
        spark=nothing,
        journal=nothing,
        pace=lambda: AT_ONCE,
    )
    given[0].require_other_database()
    assert asked == ["compared"]
    assert (given[0].scratch, given[0].scratch_size) == (Path("run/target"), 512 << 20)
    assert rooms == [48 << 20], "chunks in the driver have an eighth of the 384 MiB beside the JVM"
    parts.applier.stop()
    parts.runner.stop()
