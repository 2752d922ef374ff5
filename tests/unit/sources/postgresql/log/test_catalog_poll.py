"""What capture makes of the catalog, without a server: looks, markers, publication, and the tables' own changes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.catalog import catalog_table
from support.origins import origin
from support.pgoutput_messages import insert, relation
from support.transactions import numbered
from tailrace.capture.recorder import Recorder
from tailrace.changelog.dropped import due
from tailrace.changelog.records import SourceRenewed
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned
from tailrace.changelog.records.tables import Applied, Parts, TableForgotten, Truncated
from tailrace.changelog.records.terms import Column, Position, ResumePoint, Seq, TableSchema
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageLocation, TableOptions, TablesSpec
from tailrace.errors import NoKey, ReadRefused, SchemaChangeUnsupported, TableStop
from tailrace.sources.api import StreamContext
from tailrace.sources.log.decode import Evolved
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql.fingerprint import KINDS, CatalogLook
from tailrace.sources.postgresql.log import catalog_poll as polling
from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import MessageBlock
from tailrace.sources.postgresql.log.catalog_poll import CatalogPoll, PollContext
from tailrace.sources.postgresql.log.decode import Decoder, Decoding
from tailrace.sources.postgresql.log.tables import CapturedTables, CatalogNow
from tailrace.sources.postgresql.model import PgTable
from tailrace.sources.postgresql.publication import NEEDED, Member, Publication
from tailrace.storage.store import Storage

ORIGIN = origin()


def schema(table_id: int, name: str) -> TableSchema:
    key = Column(name="id", id=1, source_type="text", type="string", key=0)
    return TableSchema(table_id=table_id, schema_name="public", table_name=name, version=1, columns=(key,))


def table(table_id: int, name: str, *columns: str, **changes: Any) -> PgTable:
    return catalog_table(schema(table_id, name), ["id", *columns], **changes)


class Spec(SimpleNamespace):
    """No table has signals."""

    @property
    def read_tables(self) -> Any:
        return self.tables


class World:
    """A catalog, a publication, and capture's poll over a real journal."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.catalog = [table(1, "a"), table(2, "b")]
        self.published: set[int] = set()
        self.memberships: dict[int, int] = {}
        self.emptied_by = 0
        """The transaction of the last TRUNCATE."""
        self.foreign: set[int] = set()
        self.locked: set[int] = set()
        self.toast = "7"
        """Of every file."""
        self.filled: set[int] = set()
        """Files that have a page."""
        self.emitted: list[str] = []
        patch.setattr(polling, "look", lambda *_: self.look())
        patch.setattr(polling, "table_by_oid", lambda _, oid: self.lookup(oid))
        self.views: set[int] = set()
        """Relations that are no tables."""
        patch.setattr(polling, "exists", lambda _, oid: oid in self.views or self.lookup(oid) is not None)
        patch.setattr(
            polling, "is_taken", lambda _, *name: name in {(t.schema_name, t.table_name) for t in self.catalog}
        )
        patch.setattr(polling, "of_other_case", lambda *_: [])
        patch.setattr(polling, "empty", lambda _, oids: frozenset(oids) - self.filled)
        patch.setattr(slots, "unpublishable", self.unpublishable)
        patch.setattr(slots, "ensure_publication", self.publish)
        patch.setattr(slots, "edge", lambda _: str(9 + len(self.emitted)))
        patch.setattr(slots, "emit", lambda _, content, transactional: self.emitted.append(content))
        self.initial = SimpleNamespace(initial=True)
        self.spec = spec = Spec(
            tables=TablesSpec(include=("public.*",)),
            options=(),
            read_options=(),
            on_schema_change="EvolveAdditive",
            on_table_drop="Keep",
            snapshot=self.initial,
            source=SimpleNamespace(signal_table=None),
        )
        names = SimpleNamespace(publication="p", publication_is_ours=True)
        connection = SimpleNamespace(info=SimpleNamespace(server_version=180000))
        replicator = SimpleNamespace(spec=spec)
        place = SimpleNamespace(connection=connection, replicator=replicator, names=names, begins=False)
        self._place = cast(PollContext, place)
        storage = Storage.open(StorageLocation(location=f"file://{folder}/log"))
        self.journal = JournalWriter.create(storage, ORIGIN, Position(5), "n")
        self.start()

    def start(self) -> None:
        """A process over the journal as it is."""
        self.tables = CapturedTables(CatalogNow(lambda oid, modifier: "text", self.lookup))
        for known in [t for t in self.journal.state.tables.values() if not t.removed]:
            self.tables.add(known.schema, known.stopped is not None, known.fingerprint)
        self.described: set[int] = set()
        self.recorder = Recorder(self.journal, lambda: None, lambda _: None)
        self.decoding = Decoding(Decoder(self.tables), self.recorder)
        context = StreamContext(self.recorder, self.settle, "n", Path(), 1)
        self.poll = CatalogPoll(self._place, self.tables, context)

    def look(self) -> CatalogLook:
        """Each time a table is put into the publication, its membership is another one."""
        members = {oid: Member(self.memberships[oid], False, None) for oid in self.published}
        publication = Publication("p", "1 1", False, True, NEEDED, members, {})
        return CatalogLook({t.oid: self._with_parts(t, publication) for t in self.catalog}, publication)

    def _with_parts(self, table: PgTable, publication: Publication) -> PgTable:
        parts: Parts = {kind: {} for kind in KINDS}
        parts["file"] = {str(oid): str(file) for oid, file in table.storage}
        parts["toast"] = dict.fromkeys(parts["file"], self.toast)
        parts["membership"] = {"row": publication.membership(table)}
        parts["attributes"] = {"count": str(max(c.attnum for c in table.columns))}
        return replace(table, parts=parts, emptied_by=dict.fromkeys(parts["file"], self.emptied_by))

    def truncate(self, table_id: int) -> None:
        """As the stream tells it."""
        self.emptied_by = self.journal.state.last_seq + 1
        seq = self.journal.state.last_seq + 1
        events = (Truncated(table_id=table_id, seq=Seq(seq), transaction=str(seq)),)
        self.journal.append(
            Position(5),
            Seq(seq),
            transactions=numbered((seq,), (seq,)),
            events=events,
        )

    def rereads(self) -> list[str]:
        return [s.table.name for t in self.journal.state.tables.values() for s in t.schemas if s.reread]

    def lookup(self, oid: int) -> PgTable | None:
        return next((t for t in self.catalog if t.oid == oid), None)

    def settle(self) -> Position:
        self.recorder.cut(ResumePoint(Position(5)))
        return Position(5)

    def unpublishable(self, _: object, name: str, tables: list[PgTable], ours: bool) -> dict[int, TableStop]:
        return {t.oid: ReadRefused(t.name, "not ours") for t in tables if t.oid in self.foreign}

    def publish(self, _: object, name: str, tables: list[PgTable], ours: bool) -> dict[int, str]:
        wanted = {t.oid for t in tables} - self.locked
        for oid in wanted - self.published:
            self.memberships[oid] = self.memberships.get(oid, 0) + 1
        self.published = wanted
        return {t.oid: "somebody holds a lock on it" for t in tables if t.oid in self.locked}

    def row(self, table_id: int, leaf: int) -> None:
        """A row of a partition, which the stream describes the first time."""
        block = MessageBlock()
        block.begin(1000 + self.recorder.next_seq, 5)  # begun behind every edge
        block.add(relation(table_id, ["id"], ["id"], self.tables.known[table_id].schema.table_name))
        if leaf not in self.described:
            block.add(relation(leaf, ["id"], ["id"], f"p{leaf}"))
        self.described.add(leaf)
        block.add(insert(table_id, ["1"]))
        self.decoding.rows(block)
        self.settle()

    def stream(self, table_id: int, *columns: str) -> object:
        """A row with these columns comes from the stream."""
        found = self.tables.known[table_id].schema
        message = relation(table_id, ["id", *columns], ["id"], found.table_name)
        return self.tables.form_of(pgoutput.relation(message), 7, described=True)

    def marker_returns(self) -> None:
        self.poll.marker(self.emitted[-1])

    def stops(self) -> dict[str, str]:
        tables = self.journal.state.tables.values()
        return {t.schema.table_name: t.stopped.error for t in tables if t.stopped is not None}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path, patch)
        world.poll.poll()
        yield world


def test_tables_are_added_published_and_a_new_column_is_tied_to_the_marker(world: World) -> None:
    assert world.published == {1, 2}
    world.catalog = [table(1, "a", "v"), table(2, "b")]
    world.poll.poll()
    assert world.journal.state.tables[1].schema.version == 1
    world.marker_returns()
    assert [c.name for c in world.journal.state.tables[1].schema.columns] == ["id", "v"]


def test_a_look_that_is_older_than_what_the_stream_brought_since_stops_no_table(world: World) -> None:
    """Both changes lie behind each other in the log: the marker is acted on after the second one was seen."""
    world.catalog = [table(1, "a", "v"), table(2, "b")]
    world.poll.poll()
    world.catalog = [table(1, "a", "v"), table(2, "b", "w")]
    assert isinstance(world.stream(2, "w"), Evolved)
    world.marker_returns()
    assert world.stops() == {}
    assert [c.name for c in world.journal.state.tables[1].schema.columns] == ["id", "v"]


def test_a_dropped_column_stops_its_table_alone_and_takes_it_out_of_the_publication(world: World) -> None:
    world.catalog = [table(1, "a", "v"), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    world.catalog = [table(1, "a"), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.stops() == {"a": SchemaChangeUnsupported.__name__}
    world.poll.poll()
    assert world.published == {2}


def test_a_table_that_lost_its_key_leaves_the_publication_and_comes_back_with_a_key(world: World) -> None:
    """Published without a key, it could not be updated at the source."""
    world.catalog = [table(1, "a", stop=NoKey("public.a", "no key")), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    world.poll.poll()
    assert (world.stops(), world.published) == ({"a": "NoKey"}, {2})
    world.catalog = [table(1, "a"), table(2, "b")]
    world.poll.poll()
    assert (world.stops(), world.published) == ({}, {1, 2})


def test_an_excluded_table_leaves_the_publication(world: World) -> None:
    world.catalog = [table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.journal.state.tables[1].removed
    world.poll.poll()
    assert world.published == {2}


def look_again(world: World) -> None:
    world.poll.poll()
    world.marker_returns()


def due_copies(world: World) -> list[tuple[str, str]]:
    return [dropped.place for dropped in due(world.journal.state)]


def test_a_dropped_table_takes_its_copy_along_if_the_policy_says_so(world: World) -> None:
    world.catalog = [table(2, "b")]
    look_again(world)
    assert due_copies(world) == [] and world.journal.state.tables[1].removed
    world.spec.on_table_drop, world.catalog = "Drop", []
    look_again(world)
    assert due_copies(world) == [], "somebody may be about to create another one"
    look_again(world)
    world.settle()
    assert due_copies(world) == [("public", "b")]


@pytest.mark.parametrize(
    "change",
    [
        lambda world: setattr(world, "views", {1}),
        lambda world: setattr(world.spec, "tables", TablesSpec(include=("public.*",), exclude=("public.a",))),
        lambda world: setattr(world.spec, "options", (TableOptions(match="public.a", on_table_drop="Keep"),)),
    ],
    ids=["it became a view", "it was excluded, too", "kept by its options"],
)
def test_a_table_that_is_gone_from_the_look_keeps_its_copy(world: World, change: Callable[[World], None]) -> None:
    world.spec.on_table_drop, world.catalog = "Drop", [table(2, "b")]
    change(world)
    for _ in range(3):
        look_again(world)
    assert world.journal.state.tables[1].removed and due_copies(world) == []


def test_one_that_is_only_not_selected_any_more_keeps_its_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec.on_table_drop = "Drop"
    monkeypatch.setattr(polling, "look", lambda *_: replace(world.look(), tables={2: world.look().tables[2]}))
    for _ in range(3):
        look_again(world)
    assert world.journal.state.tables[1].removed and due_copies(world) == []


def test_a_table_that_is_made_again_has_the_place_before_it_is_captured(world: World) -> None:
    world.spec.on_table_drop, world.catalog = "Drop", [table(2, "b"), table(3, "a")]
    look_again(world)
    assert world.journal.state.tables[1].removed and 3 not in world.journal.state.tables
    assert due_copies(world) == []
    look_again(world)
    assert due_copies(world) == [] and not world.journal.state.tables[3].removed
    world.catalog = [table(2, "b")]
    look_again(world)
    look_again(world)
    world.settle()
    assert due_copies(world) == [("public", "a")] and world.journal.state.dropped[0].table_ids == (1, 3)


def test_one_that_is_made_again_and_dropped_before_it_is_captured_frees_the_place(world: World) -> None:
    world.spec.on_table_drop, world.catalog = "Drop", [table(2, "b"), table(3, "a")]
    look_again(world)
    world.catalog = [table(2, "b")]
    look_again(world)
    world.settle()
    assert due_copies(world) == [("public", "a")]


def test_a_table_that_we_may_not_publish_stops_alone_and_is_taken_in_when_we_may(world: World) -> None:
    world.foreign = {3}
    world.catalog.append(table(3, "c"))
    for _ in range(3):
        world.poll.poll()
    assert (world.stops(), world.published) == ({"c": "ReadRefused"}, {1, 2})
    added = world.journal.state.number
    world.poll.poll()
    assert world.journal.state.number == added
    world.foreign = set()
    world.poll.poll()
    assert (world.stops(), world.published) == ({}, {1, 2, 3})


@pytest.mark.parametrize("stopped_meanwhile", [False, True])
def test_other_files_without_a_truncate_call_for_a_re_read_also_after_a_stop(
    world: World, stopped_meanwhile: bool
) -> None:
    """A rewrite, or a partition detached: rows went or changed, and the log has no word of it."""
    world.catalog = [table(1, "a", storage=((1, 99),)), table(2, "b")]
    if stopped_meanwhile:
        world.start()
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == ["public.a"]
    assert world.journal.state.tables[1].edge == "10", "commits that are logged and not visible yet are waited for"
    world.start()
    marked = len(world.emitted)
    world.poll.poll()
    assert len(world.emitted) == marked


def test_a_new_empty_partition_costs_nothing_and_one_with_rows_a_re_read(world: World) -> None:
    own = table(1, "a").storage
    for storage, rereads in (
        ((*own, (7, 7)), []),
        ((*own, (7, 7), (8, 8)), ["public.a"]),
        (((7, 7), (8, 8)), ["public.a", "public.a"]),
    ):
        world.filled = {8}
        world.catalog = [table(1, "a", storage=storage), table(2, "b")]
        world.poll.poll()
        world.marker_returns()
        assert world.rereads() == rereads
        marked = len(world.emitted)
        world.poll.poll()
        assert len(world.emitted) == marked, "the new files are known"


@pytest.mark.parametrize("stopped_meanwhile", [False, True])
@pytest.mark.parametrize("left", [(), ((7, 7),), ((7, 70),)], ids=["gone", "empty", "truncated"])
def test_a_partition_that_had_rows_before_any_look_saw_it_calls_for_a_re_read(
    world: World, left: tuple[tuple[int, int], ...], stopped_meanwhile: bool
) -> None:
    world.row(1, 7)
    if stopped_meanwhile:
        world.start()
    world.catalog = [table(1, "a", storage=(*table(1, "a").storage, *left)), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == ["public.a"]
    marked = len(world.emitted)
    world.poll.poll()
    assert len(world.emitted) == marked


def test_a_partition_that_a_look_saw_empty_is_filled_without_a_re_read(world: World) -> None:
    world.catalog = [table(1, "a", storage=(*table(1, "a").storage, (7, 7))), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    world.row(1, 7)
    world.start()
    world.row(1, 7)
    marked = len(world.emitted)
    world.poll.poll()
    assert (world.rereads(), len(world.emitted)) == ([], marked)


def test_a_partition_that_comes_while_a_look_waits_is_left_to_the_next_look(world: World) -> None:
    """The server describes it once: what the older look says must not make us forget it."""
    world.poll.poll(always_mark=True)
    world.row(1, 7)
    world.marker_returns()
    assert world.rereads() == []
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == ["public.a"]


@pytest.mark.parametrize("stopped_meanwhile", [False, True])
def test_other_files_after_a_truncate_call_for_nothing(world: World, stopped_meanwhile: bool) -> None:
    world.truncate(1)
    world.catalog = [table(1, "a", storage=((1, 99),)), table(2, "b")]
    if stopped_meanwhile:
        world.start()
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == []
    world.catalog = [table(1, "a", storage=((1, 100),)), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == ["public.a"]


@pytest.mark.parametrize(("toast", "filled", "rereads"), [("8", True, 1), ("0", True, 1), ("8", False, 0)])
def test_a_truncate_does_not_explain_a_file_that_may_have_been_rewritten(
    world: World, toast: str, filled: bool, rereads: int
) -> None:
    """Rows that came into the file in the transaction of the TRUNCATE need not be in the log."""
    world.truncate(1)
    world.toast = toast
    world.filled = {1} if filled else set()
    world.catalog = [table(1, "a", storage=((1, 99),)), table(2, "b", storage=((2, 1),))]
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == ["public.a"] * rereads


def test_a_new_table_that_is_locked_is_taken_in_when_it_can_be_published(world: World) -> None:
    world.catalog.append(table(3, "c"))
    world.locked = {3}
    world.poll.poll()
    assert set(world.journal.state.tables) == {1, 2}
    world.locked = set()
    world.poll.poll()
    assert set(world.journal.state.tables) == {1, 2, 3} and world.published == {1, 2, 3}


def test_a_stream_that_begins_anew_has_its_request_wait_for_tables_that_are_locked(world: World) -> None:
    world.catalog.append(table(3, "new"))
    world.published, world.locked = set(), {2, 3}
    world.journal.append(Position(5), events=(SourceRenewed(id="all", identity={}, request="again"),))
    world.start()
    world.poll.poll()
    asked = world.journal.state.snapshots["all"]
    assert set(asked.plan.tables) == {1, 2, 3} and world.journal.state.tables[1].resync == "all"
    assert world.stops() == {"b": "ReadRefused", "new": "ReadRefused"}
    world.poll.poll()
    world.marker_returns()
    assert asked.awaits(world.journal.state.tables[2]) and asked.awaits(world.journal.state.tables[3])
    world.locked = {3}
    world.poll.poll()
    world.marker_returns()
    assert world.journal.state.tables[2].resync == "all" and world.stops() == {"new": "ReadRefused"}
    world.locked = set()
    world.poll.poll()
    world.marker_returns()
    assert world.journal.state.tables[3].resync == "all" and world.stops() == {}
    assert [key for key in world.journal.state.snapshots if key != "all"] == []


def test_a_table_is_no_longer_held_back_when_what_it_was_held_for_has_gone(world: World) -> None:
    """Nothing differs any more, so that no other look would be acted on."""
    world.poll.held = frozenset({1})
    world.poll.poll()
    world.marker_returns()
    assert world.poll.held == frozenset()


def test_a_marker_of_somebody_else_means_nothing(world: World) -> None:
    before = world.journal.state
    world.poll.marker("other:1")
    assert world.journal.state == before


def test_a_column_that_was_renamed_before_we_came_to_it_has_its_rows_read_again(world: World) -> None:
    """Its values under the old name cannot be placed: without a re-read they would be lost without a word."""
    world.catalog = [table(1, "a", "new_name"), table(2, "b")]
    evolved = world.stream(1, "old_name")
    assert isinstance(evolved, Evolved)
    assert evolved.reread
    assert [c.name for c in evolved.form.schema.columns] == ["id"]


def test_a_column_that_was_dropped_before_we_came_to_it_costs_nothing(world: World) -> None:
    assert not isinstance(world.stream(1, "scratch"), Evolved)
    assert world.tables.known[1].schema.version == 1


def test_a_new_column_with_a_name_of_the_logs_own_stops_the_table_before_its_rows(world: World) -> None:
    world.catalog = [table(1, "a", "_op"), table(2, "b")]
    with pytest.raises(ReadRefused, match=r"'_op' of public\.a"):
        world.stream(1, "_op")


def test_a_table_that_somebody_took_out_of_our_publication_stops_and_is_taken_in_again(world: World) -> None:
    world.published.remove(1)
    world.poll.poll()
    world.marker_returns()
    assert world.stops() == {"a": ReadRefused.__name__}
    world.poll.poll()
    assert (world.stops(), world.published) == ({}, {1, 2})
    assert world.rereads() == [], "its snapshot is the one of a table that is new"
    marked = len(world.emitted)
    world.poll.poll()
    assert len(world.emitted) == marked, "the membership is the one that we made"


def test_a_column_that_is_new_to_us_and_older_than_the_last_look_has_its_rows_read_again(world: World) -> None:
    """options[].columns named fewer before: no ALTER ever told of it."""
    world.catalog = [table(1, "a", "v", "w"), table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.rereads() == []
    known = world.journal.state.tables[1]
    world.tables.known[1].schema = known.schema.model_copy(
        update={"columns": tuple(c for c in known.schema.columns if c.name != "v")}
    )
    world.poll.poll()
    world.marker_returns()
    assert [c.name for c in world.journal.state.tables[1].schema.columns] == ["id", "w", "v"]
    assert world.rereads() == ["public.a"]


@pytest.mark.parametrize("begins", ["renamed", "mended"])
def test_a_known_table_that_begins_again_is_read_also_without_initial_snapshots(world: World, begins: str) -> None:
    world.initial.initial = False
    if begins == "renamed":
        world.catalog = [table(1, "c"), table(2, "b")]
        world.poll.poll()
    else:
        world.catalog = [table(1, "a", stop=NoKey("public.a", "no key")), table(2, "b")]
        world.poll.poll()
        world.marker_returns()
        world.catalog = [table(1, "a", "v"), table(2, "b")]
        world.poll.poll()
    world.marker_returns()
    assert world.journal.state.tables[1].added_record > world.journal.state.tables[2].added_record
    assert world.journal.state.tables[1].initial_snapshot
    world.catalog.append(table(3, "d"))
    world.poll.poll()
    assert not world.journal.state.tables[3].initial_snapshot, "it was never here"


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("oid", [1, 7])
def test_a_table_under_a_name_whose_target_has_a_gap_is_read_also_without_initial_snapshots(
    world: World, oid: int, forgotten: bool
) -> None:
    """It was dropped, or out of `tables.include`, and is back, by itself (1) or as another table of its name (7)."""
    world.initial.initial = False
    applied = Applied(table_id=1, applied_seq=Seq(0), applied_record=world.journal.state.number)
    world.journal.append(Position(5), events=(applied,))
    world.catalog = [table(2, "b")]
    world.poll.poll()
    world.marker_returns()
    assert world.journal.state.tables[1].removed
    if forgotten:
        world.journal.append(Position(5), events=(TableForgotten(table_id=1),))
        world.start()
    world.catalog = [table(oid, "a"), table(2, "b"), table(9, "never_here")]
    world.poll.poll()
    world.marker_returns()
    back = world.journal.state.tables
    assert not back[oid].removed and back[oid].initial_snapshot, "what was written meanwhile is in the table only"
    assert not back[9].initial_snapshot


def test_a_resync_that_is_stopped_before_the_marker_empties_no_target(world: World) -> None:
    plan = SnapshotPlanned(snapshot_id="r", request="r", tables=(1,), resync=True)
    world.journal.append(Position(5), events=(plan,))
    world.poll.poll()
    before = world.journal.state.tables[1].generation
    world.journal.append(Position(5), events=(SnapshotEnded(snapshot_id="r", outcome="stopped"),))
    world.marker_returns()
    assert world.journal.state.tables[1].generation == before
