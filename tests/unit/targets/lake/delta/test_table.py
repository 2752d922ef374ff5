"""Delta's metadata, statistics, applied state and actions, without a JVM."""

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from support.lake import LocalFiles, new_location, table_schema
from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import Column, RecordNumber, Seq, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.errors import ForeignChange, Retry, SchemaChangeUnsupported, TargetChanged, TargetRefused
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta import foreign as delta_foreign
from tailrace.targets.lake.delta import schema as delta_schema
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.delta.commit import LiveFile, new_add, path_of, plan, uri_of
from tailrace.targets.lake.delta.known import KnownVersion, LogVersion
from tailrace.targets.lake.delta.protocol import NEW
from tailrace.targets.lake.delta.replay import State, replay
from tailrace.targets.lake.delta.stats import PREFIX, bounds, dumps, file_stats, loads
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files import write as files
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.model import NewFile, TableCommit

GUID = uuid.UUID(int=7)
ALL = ["bool", "int32", "int64", "float64", "decimal(20,3)", "string", "binary", "date", "timestamp", "timestamptz"]


def layout_of(kinds: list[str]) -> Layout:
    schema = table_schema([(f"k{number}", kind) for number, kind in enumerate(kinds)], ["k0"])
    return Layout(schema, delta_schema.arrow_schema(delta_schema.new_metadata(schema, "x", 0), schema))


def stats_of(folder: Path, kind: str, values: list[Any]) -> tuple[str, Layout]:
    layout = layout_of([kind])
    rows = pa.table({"k0": pa.array(values, layout.arrow.field(0).type)})
    made = files.write_file(LocalFiles(), files.data_path(new_location(folder), uuid.uuid4()), layout, [rows])
    assert made is not None
    return file_stats(made.footer, list(layout.arrow), tight=True), layout


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "decimal(20,3)": st.decimals(-(10**16), 10**16, places=3),
    "string": st.text(st.characters(codec="utf-8"), max_size=80),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(dt.UTC)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_statistics_never_exclude_a_row_that_is_there(kind: str, tmp_path: Path) -> None:
    @settings(max_examples=25, deadline=None)
    @given(values=st.lists(VALUES[kind], min_size=1, max_size=5))
    def check(values: list[Any]) -> None:
        text, layout = stats_of(tmp_path, kind, values)
        lower, upper = bounds(text, layout.fields)
        if lower:
            kept = [Decimal(value) if kind.startswith("decimal") else value for value in values]
            low: Any = lower["k0"]
            high: Any = upper["k0"]
            assert all(low <= value <= high for value in kept)
        assert loads(text)["numRecords"] == len(values)

    check()


def test_statistics_of_nulls_long_texts_and_wide_decimals(tmp_path: Path) -> None:
    text, _ = stats_of(tmp_path, "int64", [None, None])
    assert (loads(text)["minValues"], loads(text)["maxValues"], loads(text)["nullCount"]) == ({}, {}, {"c1": 2})
    text, _ = stats_of(tmp_path, "string", ["a" * 40, "z" * 40, None])
    assert loads(text)["maxValues"]["c1"] == "z" * PREFIX + "\U0010ffff"
    text, _ = stats_of(tmp_path, "decimal(20,3)", [Decimal("12345678901234567.891")])
    assert '"c1":12345678901234567.891' in text
    assert dumps(loads(text)) == text


def test_floats_and_bytes_have_no_bounds(tmp_path: Path) -> None:
    for kind, value in (("float64", 1.5), ("binary", b"x"), ("bool", True)):
        text, layout = stats_of(tmp_path, kind, [value])
        assert loads(text)["minValues"] == {} and bounds(text, layout.fields) == ({}, {})


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("far", ["+12024-01-01", "-0044-03-15", "12024-01-01T00:00:00.000Z"])
def test_bounds_that_python_cannot_hold_are_no_bounds(kind: str, far: str) -> None:
    """Spark writes them when somebody optimizes the table; Tailrace itself leaves them out."""
    fields = {"k": pa.field("c1", layout_of([kind]).arrow.field(0).type)}
    near = "2024-01-01" if kind == "date" else "2024-01-01T00:00:00.000"
    text = json.dumps({"numRecords": 2, "minValues": {"c1": near}, "maxValues": {"c1": far}})
    assert bounds(text, fields) == ({}, {})


def test_the_last_instant_is_not_cut_off_by_a_bound_in_milliseconds() -> None:
    fields = {"k": pa.field("c1", pa.timestamp("us"))}
    low, last = "2024-01-01T00:00:00.000", "9999-12-31T23:59:59.999"
    assert bounds(json.dumps({"minValues": {"c1": low}, "maxValues": {"c1": last}}), fields) == ({}, {})
    upper = bounds(json.dumps({"minValues": {"c1": low}, "maxValues": {"c1": low}}), fields)[1]["k"]
    assert upper == dt.datetime(2024, 1, 1, 0, 0, 0, 1000)


def test_a_new_table_maps_columns_by_name_and_evolving_adds_new_ids_only() -> None:
    schema = table_schema([("id", "int64"), ("A`b", "timestamp")], ["id"])
    metadata = delta_schema.new_metadata(schema, "x", 0)
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "2"
    assert metadata["configuration"]["delta.dataSkippingStatsColumns"] == "`id`,`A``b`"
    assert delta_schema.evolved(metadata, schema) is None
    new = Column(name="new", id=9, source_type="numeric", type="decimal(9,2)")
    wider = schema.model_copy(update={"version": 2, "columns": (*schema.columns, new)})
    after = delta_schema.evolved(metadata, wider)
    assert after is not None
    assert [field.name for field in delta_schema.arrow_schema(after, wider)] == ["c1", "c2", "c3"]
    assert list(delta_schema.all_fields(after)) == ["id", "A`b", "new"]
    assert json.loads(after["schemaString"])["fields"][2]["type"] == "decimal(9,2)"


def version_of(schema: TableSchema, names: dict[int, str]) -> TableSchema:
    """The next version, with these columns by number; new ones are texts."""
    known = {column.id: column for column in schema.columns}
    columns = tuple(
        known[n].model_copy(update={"name": name})
        if n in known
        else Column(name=name, id=n, source_type="", type="string")
        for n, name in names.items()
    )
    return schema.model_copy(update={"version": schema.version + 1, "columns": columns})


def mapped(metadata: dict[str, Any]) -> dict[str, str]:
    return {name: field.name for name, field in delta_schema.all_fields(metadata).items()}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({1: "id", 2: "a"}, {"id": "c1", "a": "c2"}),
        ({1: "id", 2: "b", 3: "a"}, {"id": "c1", "b": "c2", "a": "c3"}),
        ({1: "id", 3: "a", 4: "b"}, {"id": "c1", "a": "c3", "b": "c4"}),
        ({1: "id", 2: "A", 3: "b"}, {"id": "c1", "A": "c2", "b": "c3"}),
        ({1: "id", 2: "a", 4: "b"}, {"id": "c1", "a": "c2", "b": "c4"}),
    ],
    ids=["drop", "swap", "drop, rename onto it, add", "case", "drop and add again"],
)
@pytest.mark.parametrize("numbered", [True, False])
def test_columns_are_dropped_and_renamed_by_their_numbers_and_old_files_keep_their_layout(
    names: dict[int, str], expected: dict[str, str], numbered: bool
) -> None:
    first = table_schema([("id", "int64"), ("a", "string"), ("b", "string")], ["id"])
    metadata = delta_schema.new_metadata(first, "x", 0)
    if not numbered:  # as a former version made it
        del metadata["configuration"]["tailrace.columns"]
    wanted = version_of(first, names)
    after = delta_schema.evolved(metadata, wanted, first)
    assert after is not None and mapped(after) == expected
    assert delta_schema.evolved(after, wanted, first) is None
    assert [f.name for f in delta_schema.arrow_schema(after, wanted)] == list(expected.values())
    assert delta_schema.arrow_schema(after, first, present=False) == delta_schema.arrow_schema(metadata, first)
    told = after["configuration"]["delta.dataSkippingStatsColumns"].replace("`", "").split(",")
    assert set(told) <= set(expected)
    again = delta_schema.evolved(after, version_of(wanted, {**names, 9: "z"}), wanted)
    assert again is not None and mapped(again)["z"] == f"c{max(names) + 1 if max(names) > 3 else 4}"


def test_columns_of_others_stay_and_one_of_ours_that_they_dropped_is_not_made_up() -> None:
    first = table_schema([("id", "int64"), ("a", "string"), ("b", "string")], ["id"])
    metadata = delta_schema.new_metadata(first, "x", 0)
    fields = json.loads(metadata["schemaString"])["fields"]
    theirs = {"name": "note", "type": "string", "nullable": True, "metadata": dict(fields[1]["metadata"])}
    theirs["metadata"] = {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "theirs"}
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": [fields[0], fields[2], theirs]})
    after = delta_schema.evolved(metadata, version_of(first, {1: "id", 3: "c"}))
    assert after is not None and mapped(after) == {"id": "c1", "c": "c3", "note": "theirs"}
    with pytest.raises(TargetChanged, match="no column 'a'"):
        delta_schema.evolved(metadata, version_of(first, {1: "id", 2: "a", 3: "c"}))


def test_a_column_that_others_have_built_on_is_neither_dropped_nor_renamed() -> None:
    first = table_schema([("id", "int64"), ("a", "string"), ("b", "string")], ["id"])
    dropped, renamed = version_of(first, {1: "id", 2: "a"}), version_of(first, {1: "id", 2: "a", 3: "c"})

    def built() -> dict[str, Any]:
        return delta_schema.new_metadata(first, "x", 0)

    checked = built()
    checked["configuration"]["delta.constraints.short"] = "length(B) < 9"
    generated = built()
    theirs = {"name": "n", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "length(b)"}}
    document = json.loads(generated["schemaString"])
    generated["schemaString"] = json.dumps({**document, "fields": [*document["fields"], theirs]})
    for metadata, told in ((checked, "CHECK constraint 'short'"), (generated, "generated column 'n'")):
        for wanted in (dropped, renamed):
            with pytest.raises(TargetChanged, match=told):
                delta_schema.evolved(metadata, wanted, first)
        assert delta_schema.evolved(metadata, version_of(first, {1: "id", 2: "c", 3: "b"}), first) is not None
    after = delta_schema.evolved(built(), dropped, first)
    assert after is not None
    clustered = {"delta.clustering": json.dumps({"clusteringColumns": [["c3"]]})}
    with pytest.raises(TargetChanged, match=r"column 'b' of s\.t, and the clustering"):
        delta_schema.check_clustering("s.t", clustered, built(), after)
    delta_schema.check_clustering("s.t", {}, built(), after)


def test_types_that_differ_are_refused() -> None:
    metadata = delta_schema.new_metadata(table_schema([("id", "int64"), ("v", "string")], ["id"]), "x", 0)
    with pytest.raises(SchemaChangeUnsupported, match="'v' is string in the target and date in the source"):
        delta_schema.evolved(metadata, table_schema([("id", "int64"), ("v", "date")], ["id"]))
    with pytest.raises(TargetChanged, match="no column 'w'"):
        delta_schema.arrow_schema(metadata, table_schema([("id", "int64"), ("w", "date")], ["id"]))


def test_a_column_that_somebody_renamed_or_dropped_in_the_target_stops_the_table() -> None:
    """Files would be written with a column that no reader of the table knows."""
    schema = table_schema([("id", "int64"), ("v", "string")], ["id"])
    metadata = delta_schema.new_metadata(schema, "x", 0)
    metadata["schemaString"] = metadata["schemaString"].replace('"name": "v"', '"name": "theirs"')
    table = DeltaTable(lambda: cast(SparkSession, None), LocalFiles(), "file:///t")
    stored = delta_state.StoredDomain(AppliedState("log", schema_version=1), 1, "n")
    table._at = KnownVersion(LogVersion(1, NEW, metadata, {}), stored, {})
    with pytest.raises(TargetChanged, match="no column 'v'"):
        table.arrow_schema(schema)
    newer = version_of(schema, {1: "id", 3: "w"})
    assert [field.name for field in table.arrow_schema(newer)] == ["c1", "c3"]


def test_nothing_is_written_on_top_of_a_version_of_ours_that_has_gone(tmp_path: Path) -> None:
    schema = table_schema([("id", "int64")], ["id"])
    stored = delta_state.StoredDomain(AppliedState("log"), 3, "n")
    location = new_location(tmp_path)
    table = DeltaTable(lambda: cast(SparkSession, None), LocalFiles(), location)
    metadata = delta_schema.new_metadata(schema, "x", 0)
    table._at = KnownVersion(LogVersion(3, NEW, metadata, {}, b"digest"), stored, {})
    with pytest.raises(Retry, match=r"version 3 of .* is missing or another one"):
        table.commit(TableCommit(AppliedState("log", Seq(1), RecordNumber(1))))
    with pytest.raises(Retry, match="not known"):
        table.files()


def test_a_table_is_made_without_the_session_unless_the_environment_may_give_it_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session takes seconds to start, and of hundreds of tables each would wait for it."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    asked = list[str]()

    class Asked(Exception):
        pass

    def session() -> SparkSession:
        asked.append("session")
        raise Asked

    storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    schema = table_schema([("id", "int64")], ["id"])
    made = DeltaTable(session, storage, f"{tmp_path.as_uri()}/s/a")
    assert made.ensure(schema, "log").log_id == "log"
    assert (made.version, asked) == (0, [])
    for variable in ("JAVA_TOOL_OPTIONS", "TAILRACE_SPARK_CONF_spark_databricks_delta_properties_defaults_appendOnly"):
        monkeypatch.setenv(variable, "-Xmx1g")
        with pytest.raises(Asked):
            DeltaTable(session, storage, f"{tmp_path.as_uri()}/s/b").ensure(schema, "log")
        monkeypatch.delenv(variable)


def test_every_logical_type_has_a_delta_type_and_comes_back() -> None:
    for kind in ALL:
        assert delta_schema.logical_type(delta_schema.delta_type(kind)) == kind
    assert delta_schema.logical_type({"type": "struct", "fields": []}) is None


def test_applied_state_comes_back_with_few_and_with_many_holes() -> None:
    saved: dict[str, bytes] = {}
    for count in (0, 2, 20_000):
        applied = AppliedState(
            "log",
            Seq(5),
            RecordNumber(6),
            frozenset((f"{number}", "ä\n") for number in range(count)),
            2,
            3,
            RecordNumber(count) if count else None,
        )
        text, path = delta_state.encode(delta_state.StoredDomain(applied, 9, "n"), saved.__setitem__)
        assert (path is not None) == (count == 20_000) == (len(saved) == 1)
        assert len(text) < delta_state.INLINE_HOLES + 500
        assert delta_state.decode(text, saved.__getitem__, "t") == delta_state.StoredDomain(applied, 9, "n", path)
    again = delta_state.StoredDomain(applied, 10, "m", path)
    assert delta_state.encode(again, lambda *_: pytest.fail("written again"))[1] == path
    with pytest.raises(TargetRefused, match="t has an unreadable"):
        delta_state.decode('{"format": 3, "logId": 1}', saved.__getitem__, "t")


def test_a_list_of_holes_is_never_named_like_one_that_was_given_up() -> None:
    """Else a clean-up that has stalled since, perhaps another driver's, may delete what a commit has just named."""
    many = AppliedState("log", holes=frozenset((f"{number}",) for number in range(20_000)))
    _, first = delta_state.encode(delta_state.StoredDomain(many, 1, "n"), lambda *_: None)
    _, none = delta_state.encode(delta_state.StoredDomain(AppliedState("log"), 2, "m", first), lambda *_: None)
    _, again = delta_state.encode(delta_state.StoredDomain(many, 3, "o", none), lambda *_: None)
    assert first and again and not none and first != again
    _, kept = delta_state.encode(delta_state.StoredDomain(many, 4, "p", again), lambda *_: pytest.fail("written again"))
    assert kept == again


def test_a_lost_list_of_holes_stops_the_table_by_name(tmp_path: Path) -> None:
    text = {"format": 3, "logId": "l", "appliedSequence": 1, "appliedRecord": 1, "schemaVersion": 1, "tableId": 1}
    text |= {"version": 1, "nonce": "n", "holesFile": "_tailrace/holes-1.json"}
    storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    table = DeltaTable(lambda: cast(SparkSession, None), storage, f"{tmp_path.as_uri()}/t")
    with pytest.raises(TargetChanged, match=r"holes-1\.json is gone"):
        table._reader.stored("s.t", State(domains={delta_state.DOMAIN: json.dumps(text)}))


def add_of(path: str, rows: int, **more: Any) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows, "tightBounds": True})
    return {"path": path, "size": 9, "modificationTime": 1, "partitionValues": {}, "stats": stats, **more}


def test_a_mark_removes_the_file_with_its_old_vector_and_adds_it_with_the_new_one() -> None:
    old = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 4, "cardinality": 1}
    live = {"u/a": LiveFile(add_of("a", 10, deletionVector=old), BitMap64([1]))}
    out = plan(TableCommit(AppliedState("l"), marks={"u/a": BitMap64([1, 2])}), live, [], file_id=GUID, now_ms=5)
    remove, add = out.actions[0]["remove"], out.actions[1]["add"]
    assert remove["deletionVector"] == old and remove["dataChange"]
    assert add["deletionVector"]["cardinality"] == 2 and json.loads(add["stats"])["tightBounds"] is False
    assert out.live["u/a"].dead == BitMap64([1, 2]) and not out.files
    assert json.loads(live["u/a"].add["stats"])["tightBounds"] is True


def test_a_mark_that_says_nothing_new_makes_no_action_and_a_dead_file_is_only_removed() -> None:
    live = {name: LiveFile(add_of(name, 2), BitMap64([0])) for name in ("a", "b")}
    marks = {"a": BitMap64([0]), "b": BitMap64([0, 1])}
    out = plan(TableCommit(AppliedState("l"), marks=marks), live, [], file_id=GUID, now_ms=5)
    assert [list(action) for action in out.actions] == [["remove"]]
    assert list(out.live) == ["a"]


def test_clear_and_compaction_remove_files_and_large_vectors_share_one_file() -> None:
    live = {name: LiveFile(add_of(name, 10**6), BitMap64()) for name in ("a", "b", "c")}
    dead = BitMap64(range(0, 10**6, 7))
    new = NewFile("u/n", 10**6, 9, dead)
    out = plan(TableCommit(AppliedState("l"), [new], clear=True), live, [add_of("n", 10**6)], file_id=GUID, now_ms=5)
    assert list(out.live) == ["u/n"] and len(out.actions) == 4
    assert out.files[0][0] == f"deletion_vector_{GUID}.bin"
    moved = plan(
        TableCommit(AppliedState("l"), [NewFile("u/m", 10, 9)], data_change=False, remove=["a"]),
        live,
        [add_of("m", 10)],
        file_id=GUID,
        now_ms=5,
    )
    assert sorted(moved.live) == ["b", "c", "u/m"]
    assert not any(action[kind]["dataChange"] for action in moved.actions for kind in action)
    marks = {"a": dead, "b": BitMap64(range(1, 10**6, 7))}
    both = plan(TableCommit(AppliedState("l"), marks=marks), live, [], file_id=GUID, now_ms=5)
    assert len(both.files) == 1 and len({action["add"]["deletionVector"]["offset"] for action in both.actions[2:]}) == 2


@pytest.mark.parametrize("name", ["data/a.parquet", "data/a b%2520=ä.parquet"])
def test_paths_in_the_log_are_url_encoded(name: str) -> None:
    location = "s3://bucket/my table"
    path = path_of(f"{location}/{name}", location)
    assert " " not in path and uri_of(path, location) == f"{location}/{name}"
    assert uri_of("file:/x/a%20b", location) == "file:///x/a b"


def test_a_new_file_is_added_with_its_rows_and_its_place_below_the_table(tmp_path: Path) -> None:
    layout = layout_of(["int64"])
    location = new_location(tmp_path)
    made = files.write_file(LocalFiles(), files.data_path(location, GUID), layout, [pa.table({"k0": [4, 2]})])
    assert made is not None
    add = new_add(made.file, made.footer, list(layout.arrow), location, 5)
    assert add["path"] == f"data/{GUID}.parquet" and loads(add["stats"])["minValues"] == {"c1": 2}


def test_a_chunk_files_name_fits_into_a_folder_however_long_the_snapshots_is() -> None:
    names = {files.chunk_path("file:///t", f"{'request-' * 30}{number}", 7, uuid.UUID(int=number)) for number in (1, 2)}
    assert len(names) == 2
    assert all(len(name.rpartition("/")[2]) <= 200 and "/chunk-request-" in name for name in names)


def commit_info(operation: str) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation, "userName": "eve"}}


@pytest.mark.parametrize(
    ("operation", "change", "error"),
    [
        ("OPTIMIZE", False, None),
        ("VACUUM START", False, None),
        ("SET TBLPROPERTIES", False, None),
        ("WRITE", True, ForeignChange),
        ("MERGE", True, ForeignChange),
        ("STREAMING UPDATE", True, ForeignChange),
        ("RESTORE", True, TargetChanged),
        ("CREATE OR REPLACE TABLE AS SELECT", False, TargetChanged),
    ],
)
def test_foreign_commits_are_judged_by_what_they_did(operation: str, change: bool, error: type | None) -> None:
    actions = [commit_info(operation), {"add": {"dataChange": change}}]
    fault = delta_foreign.assess("public.t", 4, actions)
    assert type(fault) is (error or type(None))
    if fault:
        assert f"{operation} in version 4 by eve" in fault.message and fault.table == "public.t"


def test_a_restore_that_carries_our_domain_along_is_not_ours() -> None:
    domain = {"domainMetadata": {"domain": delta_state.DOMAIN, "configuration": "{}"}}
    assert delta_foreign.is_ours([commit_info("Manual Update"), domain])
    assert not delta_foreign.is_ours([commit_info("RESTORE"), domain])
    assert not delta_foreign.is_ours([commit_info("WRITE")])


def test_a_checkpoint_of_a_table_that_was_created_anew_is_read_afresh(tmp_path: Path) -> None:
    """It has the name, but not the footer, of the one that stood there before."""
    name, log = "00000000000000000100.checkpoint.parquet", tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    for count in (3, 400):
        adds: list[dict[str, object]] = [{"path": f"data/{n}.parquet", "size": n} for n in range(count)]
        rows = {"metaData": [{"id": str(count)}, *[None] * count], "add": [None, *adds]}
        pq.write_table(pa.table(rows), log / name)
        state = replay(LocalFiles(), f"file://{tmp_path}/t", [name])
        assert state is not None
        assert (state.metadata["id"], len(state.files)) == (str(count), count)


def test_a_log_file_that_is_gone_or_broken_is_left_to_delta(tmp_path: Path) -> None:
    location, name = f"{tmp_path.as_uri()}/t", f"{0:020d}.json"
    storage = Storage.open(StorageLocation(location=tmp_path.as_uri()))
    assert replay(storage, location, [name]) is None
    storage.create(f"{location}/_delta_log/{name}", b'{"add": ')
    assert replay(storage, location, [name]) is None
