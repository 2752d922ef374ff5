"""The actions of a commit, and the live files that result: their statistics are known without reading them back."""

import uuid

import pyarrow as pa
from pyroaring import BitMap64

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.targets.lake.delta.commit import Action, LiveFile, plan
from tailrace.targets.lake.delta.stats import dumps, loads
from tailrace.targets.lake.files.vectors import encode
from tailrace.targets.lake.model import NewFile, TableCommit

APPLIED = AppliedState("log", Seq(9), RecordNumber(1), frozenset(), 1, 7)
FIELDS = {"k": pa.field("c1", pa.int64())}


def add(path: str, rows: int, tight: bool = True) -> Action:
    stats = {"numRecords": rows, "minValues": {"c1": 1}, "maxValues": {"c1": rows}, "nullCount": {"c1": 0}}
    return {"path": path, "size": 10, "modificationTime": 1, "stats": dumps(stats | {"tightBounds": tight})}


def test_live_files_have_the_statistics_that_their_actions_say() -> None:
    live = {f"file:/t/{n}": LiveFile(add(n, 9, n != "marked"), BitMap64(dead)) for n, dead in
            (("whole", []), ("marked", [1]), ("untouched", [2]))}  # fmt: skip
    new = NewFile("file:/t/new", 3, 10, BitMap64([0]))
    marks = {"file:/t/whole": BitMap64([4]), "file:/t/marked": BitMap64([1, 2])}
    out = plan(TableCommit(APPLIED, [new], marks), live, [add("new", 3)], file_id=uuid.uuid4(), now_ms=5)
    assert set(out.live) == {*live, "file:/t/new"} and out.live["file:/t/untouched"] is live["file:/t/untouched"]
    for uri in ("file:/t/whole", "file:/t/marked", "file:/t/new"):
        file = out.live[uri]
        assert file.stats == loads(file.add["stats"]) and file.stats["tightBounds"] is False
        assert file.add in [action["add"] for action in out.actions if "add" in action]
    assert out.live["file:/t/marked"].is_like(live["file:/t/marked"]), "only its dead rows are others"
    assert not LiveFile(add("marked", 9), BitMap64()).is_like(live["file:/t/marked"])
    described = out.live["file:/t/whole"].data_file("file:/t", FIELDS)
    assert (described.rows, described.lower, described.upper) == (9, {"k": 1}, {"k": 9})
    before = live["file:/t/marked"].data_file("file:/t", FIELDS)
    for found in (described, out.live["file:/t/marked"].marked(before)):
        assert found.vector_bytes == len(encode(found.dead)) > before.vector_bytes == 0
