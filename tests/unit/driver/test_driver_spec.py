"""What a running driver does for another spec."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from support.fake_driver import ready
from support.resources import replicator
from tailrace.contract.driver import SpecBody
from tailrace.contract.manifest import parse
from tailrace.driver import assembly
from tailrace.driver.asking import live_spec
from tailrace.driver.assembly import DriverParts
from tailrace.driver.driver import Driver
from tailrace.errors import Retry, StorageFull


def takes(made: Driver, parts: DriverParts, **spec: Any) -> None:
    body = SpecBody(generation=4, spec=parse(json.dumps(replicator(**spec)), "m").replicator().spec)
    made._live.accepts = True
    with pytest.raises(Retry):
        made._live.offer(body, patience=0)
    made._take_spec(parts)


def test_capture_starts_again_only_for_what_it_reads_and_between_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    parts = assembly.parts(cast(Any, None), cast(Any, None), cast(Any, None), cast(Any, None),
                         spark=cast(Any, None), journal=cast(Any, None), pace=cast(Any, None))  # fmt: skip
    takes(made, parts, snapshot={"parallelism": 5})
    assert done == ["runner release", "stream follow True"]
    assert made._spec.snapshot.parallelism == 5
    done.clear()
    takes(made, parts, apply={"freshness": "1s"})
    assert done == ["capture stop", "capture start again", "runner release", "stream follow True"]
    done.clear()
    takes(made, parts, apply={"suspend": True}, tables={"include": ["a.*"]})
    assert done == ["runner hold", "capture stop", "capture start again", "runner release", "stream follow False"]
    assert (made._control.suspended, "apply" in made._control.loops) == (True, False)
    assert json.loads((tmp_path / "replicator.json").read_text())["spec"]["tables"] == {"include": ["a.*"]}
    done.clear()
    monkeypatch.setattr(parts.runner, "hold", lambda: False)
    takes(made, parts, tables={"include": ["shop.*"]})
    assert (done, made._spec.tables.include) == ([], ("a.*",)), "a chunk is being read"
    monkeypatch.setattr(parts.runner, "hold", lambda: True)
    made._take_spec(parts)
    assert done == ["capture stop", "capture start again", "runner release", "stream follow True"]
    assert (made._live.generation, "apply" in made._control.loops) == (4, True)
    made._folder.release()


def test_a_spec_that_cannot_be_kept_is_refused_and_the_old_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, done = ready(tmp_path, monkeypatch)
    parts = assembly.parts(cast(Any, None), cast(Any, None), cast(Any, None), cast(Any, None),
                         spark=cast(Any, None), journal=cast(Any, None), pace=cast(Any, None))  # fmt: skip

    def full(folder: Path, kept: object) -> bool:
        raise StorageFull("no room")

    monkeypatch.setattr(live_spec, "keep", full)
    takes(made, parts, tables={"include": ["shop.*"]})
    assert done == ["runner hold", "capture stop", "capture start again", "runner release"]
    assert (made._spec.tables.include, made._live.next()) == (("public.*",), None)
    made._folder.release()
