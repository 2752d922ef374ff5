"""The copies of dropped tables: which go, which stay, and what a deletion that was interrupted leaves."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support.dropping import storage_of
from support.journals import table_schema
from support.origins import origin
from support.resources import replicator
from tailrace import targets
from tailrace.capture.client import CaptureClient
from tailrace.changelog.dropped import is_blocked
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Event
from tailrace.changelog.records.tables import CopyRemoval, TableAdded, TableRemoved
from tailrace.changelog.records.terms import Position
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import Replicator
from tailrace.errors import Fenced, Retry
from tailrace.removal.dropped import DroppedCopies
from tailrace.storage.store import Storage

OPTIMIZED = {"commitInfo": {"operation": "OPTIMIZE"}}
WRITTEN = [{"commitInfo": {"operation": "WRITE"}}, {"add": {"path": "theirs.parquet", "dataChange": True}}]
REPLACED = [{"commitInfo": {"operation": "CREATE OR REPLACE TABLE AS SELECT"}}]


class World:
    """A journal with two tables, their copies as Delta tables, and the deletion's turns. The journal's writer stands in
    for capture, which would record the same events."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.fenced = folder, 0.0, False
        self.writer = JournalWriter.create(storage_of(folder / "log"), origin("log"), Position(5), "n")
        self.record(*(TableAdded(table=table_schema(i), edge="5") for i in (1, 2)))
        self.spec: dict[str, Any] = {"onTableDrop": "Drop"}
        self.is_done_with = True
        self.before_begun: list[Event] = []
        self.start()

    def start(self) -> None:
        """A process over what is there."""
        reader = JournalReader.open(storage_of(self.folder / "log"))
        self.journal = SharedJournal(reader)
        target = targets.open(self.now_spec().target)
        self.copies = DroppedCopies(
            self.journal,
            cast(CaptureClient, self),
            lambda: target.removal(no_spark),
            self.admit,
            spec=self.now_spec,
            is_done_with=lambda dropped: self.is_done_with,
            monotonic=lambda: self.now,
        )

    def now_spec(self) -> Any:
        document = replicator(**self.spec)
        document["spec"]["target"] = {"type": "delta", "location": f"file://{self.folder}/lake"}
        return Replicator.model_validate(document).spec

    def record(self, *events: Event) -> None:
        self.writer.append(Position(5), events=events)

    def append(self, events: Sequence[CopyRemoval]) -> int:
        """As capture's client."""
        before, self.before_begun = self.before_begun, []
        self.record(*before, *events)
        return self.writer.state.number

    def admit(self) -> None:
        if self.fenced:
            raise Fenced("the change log is in epoch 9")

    def copy(self, number: int, *, later: list[dict[str, Any]] | None = None, **state: Any) -> Path:
        """Of table `number`, by its state another one's if told so; with a later commit of somebody else."""
        state = {"logId": state.get("log", "log"), "tableId": state.get("table_id", number)} | {
            "generation": state.get("generation", 1)
        }
        domain = {"domain": "tailrace.applied", "configuration": json.dumps(state), "removed": False}
        folder = self.folder / "lake/public" / f"t{number}"
        (folder / "_delta_log").mkdir(parents=True)
        for name in ("a.parquet", "b.parquet", "_tailrace/next/1.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"x")
        self.commit(number, 0, [{"commitInfo": {"operation": "CREATE TABLE"}}])
        self.commit(number, 1, [{"commitInfo": {"operation": "STREAMING UPDATE"}}, {"domainMetadata": domain}])
        if later is not None:
            self.commit(number, 2, later)
        return folder

    def commit(self, number: int, version: int, actions: list[dict[str, Any]]) -> None:
        log = self.folder / "lake/public" / f"t{number}" / "_delta_log"
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))

    def drop(self, number: int) -> None:
        free = CopyRemoval(schema_name="public", table_name=f"t{number}", step="free")
        self.record(TableRemoved(table_id=number, reason="it was dropped", drop=True), free)

    def turn(self) -> None:
        self.now += 1000
        self.journal.look()
        self.copies.step()

    @property
    def waiting(self) -> list[tuple[str, str]]:
        return [dropped.place for dropped in self.writer.state.dropped]


def no_spark() -> Any:
    raise AssertionError("Delta needs none")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_the_copy_of_a_dropped_table_goes_with_all_that_lies_beside_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    gone, stays = world.copy(1, later=[OPTIMIZED]), world.copy(2)
    before = files(stays)
    world.turn()
    assert gone.exists()
    world.drop(1)
    world.turn()
    assert not gone.exists() and files(stays) == before and world.waiting == []
    assert "public.t1 was dropped in the source: its copy was deleted (onTableDrop: Drop)" in caplog.text


@pytest.mark.parametrize(
    ("copy", "spec", "why"),
    [
        ({"log": "another"}, {}, "its state is of change log another"),
        ({"table_id": 7}, {}, "it is the copy of another table"),
        ({"generation": 2}, {}, "it is the copy of another table"),
        ({"later": WRITTEN}, {}, "somebody else has changed or replaced it"),
        ({"later": REPLACED}, {}, "somebody else has changed or replaced it"),
        ({}, {"onTableDrop": "Keep"}, "onTableDrop is no longer Drop"),
        ({}, {"tables": {"include": ["public.t2"]}}, "onTableDrop is no longer Drop, or tables no longer select it"),
        ({}, {"options": [{"match": "public.t1", "onTableDrop": "Keep"}]}, "onTableDrop is no longer Drop"),
    ],
)
def test_what_is_not_proven_to_be_that_copy_stays_for_good_and_is_named(
    world: World, copy: dict[str, Any], spec: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = world.copy(1, **copy)
    before = files(folder)
    world.spec |= spec
    world.drop(1)
    world.turn()
    assert files(folder) == before and world.waiting == []
    assert f"public.t1 was dropped in the source: its copy stays, because {why}" in caplog.text
    world.spec = {"onTableDrop": "Drop"}
    world.turn()
    assert files(folder) == before, "what was kept once is not asked for again"


def test_a_table_that_never_had_a_copy_is_passed_over_without_a_word(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.drop(1)
    world.turn()
    assert world.waiting == [] and not caplog.records


def test_nothing_goes_while_apply_is_suspended(world: World) -> None:
    folder = world.copy(1)
    world.drop(1)
    world.spec |= {"apply": {"suspend": True}}
    world.turn()
    assert files(folder) and world.waiting == [("public", "t1")]
    world.spec = {"onTableDrop": "Drop"}
    world.turn()
    assert not folder.exists()


def test_a_table_that_takes_the_name_in_the_last_moment_keeps_the_former_copy(world: World) -> None:
    folder = world.copy(1)
    before = files(folder)
    world.drop(1)
    again = table_schema(3).model_copy(update={"table_name": "t1"})
    world.before_begun = [TableAdded(table=again, edge="5")]
    world.turn()
    assert files(folder) == before
    assert not is_blocked(world.writer.state, ("public", "t1"))


def test_who_still_works_at_a_copy_is_waited_for(world: World) -> None:
    folder = world.copy(1)
    before = files(folder)
    world.drop(1)
    world.is_done_with = False
    world.turn()
    assert files(folder) == before and is_blocked(world.writer.state, ("public", "t1"))
    world.is_done_with = True
    world.turn()
    assert not folder.exists() and not is_blocked(world.writer.state, ("public", "t1"))


@pytest.mark.parametrize("dies_after", range(5))
def test_a_deletion_that_died_half_way_is_completed_by_the_next_process_and_nobody_opens_it_before(
    world: World, dies_after: int
) -> None:
    folder = world.copy(1)
    world.drop(1)
    with pytest.MonkeyPatch.context() as patch:
        real, left = Storage.delete, [dies_after]

        def dies(storage: Storage, path: str) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(storage, path)

        patch.setattr(Storage, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            world.turn()
    assert len(files(folder)) == 5 - dies_after and is_blocked(world.writer.state, ("public", "t1"))
    world.spec = {"onTableDrop": "Keep"}  # too late: half of it is no copy
    world.start()
    world.turn()
    assert not folder.exists() and world.waiting == []


def test_a_target_that_is_away_is_named_and_tried_again_and_holds_nobody_else_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = world.copy(1), world.copy(2)
    world.drop(1)
    world.drop(2)
    real, away = Storage.delete, [True]

    def delete(storage: Storage, path: str) -> None:
        if away[0] and "/t1/" in path:
            raise Retry("503 from the store")
        real(storage, path)

    monkeypatch.setattr(Storage, "delete", delete)
    world.turn()
    assert one.exists() and not two.exists()
    assert {p: (f.name, f.where) for p, f in world.copies.faults.items()} == {("public", "t1"): ("Retry", "target")}
    assert "the copy of the dropped table public.t1 is still there: Retry: 503" in caplog.text
    world.turn()
    assert world.copies.faults["public", "t1"].count == 2
    away[0] = False
    world.turn()
    assert not one.exists() and world.copies.faults == {}


def test_a_driver_that_another_has_taken_over_from_deletes_nothing_more(world: World) -> None:
    folder = world.copy(1)
    before = files(folder)
    world.drop(1)
    world.fenced = True
    with pytest.raises(Fenced):
        world.turn()
    assert files(folder) == before
