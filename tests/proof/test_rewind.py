"""Tables that go back to a cut hold what the source held then, and are equal again after the next start.

All of Tailrace in one process; the command by itself, and killed, for Delta, which needs no JVM for it. A whole driver
is killed while it carries out a request. Whole drivers throughout: `tests/soak/test_soak_rewind.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.database_copies import settle
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.proof.harness import SMALL, Begin
from support.proof.process import ENVIRONMENT, forked
from support.resources import replicator as document_of
from support.rewinding import Rewindable, await_cut, keeper, requests_of, rewound
from support.scripted import N
from support.scripted_database import Change, Database
from support.scripted_runs import by_key, filled
from support.seam_names import checked
from support.versions import turns
from tailrace import sources
from tailrace.batch.applied import Generation
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.manifest import load as load_manifest
from tailrace.contract.resources import Replicator, SnapshotRequestSpec
from tailrace.contract.status import RewindStatus, SnapshotStatus
from tailrace.driver.asking.rewind import Rewound
from tailrace.driver.asking.rewind_requests import RewindRequests
from tailrace.driver.process.run_dir import RunFolder
from tailrace.driver.telling.applied_report import Reporter
from tailrace.errors import Retry, RewindRefused
from tailrace.places import Places
from tailrace.targets.api import Opening, Runtime
from tailrace.targets.lake.model import TableCommit, always
from tailrace.targets.lake.rewinding import LakeRewinding

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def write(database: Database, step: int) -> None:
    """What an undo from memory would have to get right: updates, a truncate, keys that go and come back."""
    steps = (
        (Change("U", 1, 3, "three"), Change("D", 2, 1), Change("I", 1, 30, "new")),
        (Change("T", 2), Change("D", 1, 30), Change("D", 1, 4), Change("I", 2, 7, "seven")),
        (Change("U", 1, 3, "last"), Change("I", 1, 4, "back"), Change("I", 2, 8, "eight")),
    )
    database.commit(*steps[step])


def command(copy: Rewindable, *arguments: str, seams: str = "") -> tuple[int, str]:
    output, marks = copy.folder / "rewind.log", copy.folder / "seams"
    output.write_text("")
    marks.mkdir(exist_ok=True)
    given = ("rewind", "-f", str(copy.manifest), "--run-dir", str(copy.folder / "run"), *arguments)
    environment = ENVIRONMENT | {"TAILRACE_SEAMS": checked(seams), "TAILRACE_SEAMS_ONCE": str(marks)}
    return forked(given, environment, output).wait(120), output.read_text()


def killed_between_tables(copy: Rewindable, cut: str) -> None:
    if copy.format == "delta":
        running = RunFolder(copy.folder / "run")
        running.take()
        code, said = command(copy, "--to-cut", cut)
        assert code != 0 and "AlreadyRunning" in said
        running.release()
        code, said = command(copy, "--to-cut", cut, seams="rewind.after-table=kill@1")
        assert code != 0 and list((copy.folder / "seams").iterdir()), said
    else:  # nobody asks for the second table
        rest = copy.rewind(cut=cut)
        next(rest), next(rest)


def gone_back(copy: Rewindable, cut: str) -> list[bool]:
    """Whether each table was there already."""
    if copy.format == "delta":
        code, said = command(copy, "--to-cut", cut)
        assert code == 0, said
        return ["already there" in line for line in said.splitlines() if line.startswith("  ")]
    return [done.already for done in copy.rewind(cut=cut) if isinstance(done, Rewound)]


def record_of(copy: Rewindable, cut: str) -> RecordNumber:
    return JournalReader.open(copy.storage).state.cuts[cut].record


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_tables_go_back_to_each_cut_and_are_equal_after_the_next_start(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    copy = Rewindable(filled("giro", "savings"), tmp_path, format, spark)
    with copy.running():
        for step in range(2):
            write(copy.database, step)
            copy.cut(f"cut{step}")
        write(copy.database, 2)
        copy.level()
    present = copy.source_rows()
    assert copy.copied_rows() == present
    for wanted, said in (({"cut": "cut9"}, "there is no cut 'cut9'"), ({"record": 1}, "there is no cut at record 1")):
        with pytest.raises(RewindRefused, match=said):
            list(copy.rewind(**wanted))
    assert copy.copied_rows() == present, "nothing was touched"
    killed_between_tables(copy, "cut1")
    assert copy.copied_rows() == [copy.held["cut1"][0], present[1]]
    assert gone_back(copy, "cut1") == [True, False]
    assert copy.copied_rows() == copy.held["cut1"]
    assert gone_back(copy, "cut0") == [False, False]
    assert copy.copied_rows() == copy.held["cut0"] != copy.held["cut1"]
    assert gone_back(copy, "cut1") == [False, False]
    assert copy.copied_rows() == copy.held["cut1"], "and to a later one from there"
    assert gone_back(copy, "cut1") == [True, True]
    assert gone_back(copy, "cut0") == [False, False]
    copy.stop_at = record_of(copy, "cut1")
    with copy.running():
        requests_of(copy, spark).step()
        told = [(s.plan.rewind.cut, s.is_rewound) for s in copy.state.snapshots.values() if s.plan.rewind is not None]
        assert told == [(f"cut{n}", True) for n in ((1, 0, 1, 0) if format == "delta" else ())], (
            "commands that moved tables"
        )
        copy.database.commit(Change("U", 1, 6, "later"))
        copy.until(lambda state: state.position >= copy.database.end, work=True)
        copy.until(lambda _: copy.copied_rows() == copy.held["cut1"], work=True)
        for _ in range(20):
            copy.turn()
    assert copy.copied_rows() == copy.held["cut1"], "it stays there"
    copy.stop_at, present = None, copy.source_rows()
    with copy.running():
        copy.level()
        assert copy.copied_rows() == present, "replayed"
        copy.database.commit(Change("D", 1, 5), Change("U", 2, 8, "on"))
        copy.level()
        assert copy.driver.faults() == {}
    assert copy.copied_rows() == copy.source_rows()


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_version_that_is_gone_or_of_other_columns_is_refused_and_nothing_touched(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    copy = Rewindable(filled("giro"), tmp_path, format, spark)
    with copy.running():
        copy.cut("noon")
        files = [path for path in copy.place(1).rglob("*.parquet") if "_delta_log" not in path.parts]
        copy.database.commit(Change("U", 1, 3, "three"))
        copy.level()
        (table,) = copy.state.tables.values()
        assert copy.state.origin is not None
        log_id = copy.state.origin.log_id
        version = copy.state.cuts["noon"].versions[1]
    present, place = copy.source_rows(), copy.place(1)
    opening = Opening(table.schemas[0].table, Generation(table.generation, table.begin_seq))
    rewinding = Places(copy.replicator.spec).target.rewinding(Runtime(copy.storage, always, lambda: spark, "memory"))
    assert isinstance(rewinding, LakeRewinding) and version is not None and files
    for log, number, said in (
        (log_id, 987654321, "987654321 is gone"),
        ("another", version, "its copy is gone, is another's, or has started over since"),
    ):
        with pytest.raises(RewindRefused, match=said):
            rewinding.find(opening, log, number)
    with away(files[0]), pytest.raises(RewindRefused, match=rf"{version} lacks .*{files[0].name}"):
        list(copy.rewind(cut="noon"))
    with away(place):
        with pytest.raises(RewindRefused, match="its copy is gone"):
            list(copy.rewind(cut="noon"))
        assert not place.exists(), "none is made"
    assert copy.copied_rows() == present
    made = rewinding.make(opening.schema)
    applied = made.ensure(opening.schema, log_id, opening.generation)
    changed = opening.schema.model_copy(update={"version": 9, "columns": (*opening.schema.columns, N)})
    made.commit(TableCommit(replace(applied, schema_version=9), evolve=changed))
    with pytest.raises(RewindRefused, match="its columns have changed since"):
        rewinding.find(opening, log_id, version)
    assert copy.copied_rows() == present


def asked(copy: Pipeline, ident: str, name: str = "back", **rewind: object) -> SnapshotStatus:
    """What the driver says of the request after it has taken it."""
    spec = {"replicator": copy.driver.control.name, "tables": ["*.*"], "mode": "Rewind", "rewind": rewind}
    body = SnapshotBody(name=name, spec=SnapshotRequestSpec.model_validate(spec))
    copy.driver.control.request(ident, body)
    copy.driver.journal.refresh()
    return told(copy, ident)


def told(copy: Pipeline, ident: str) -> SnapshotStatus:
    (found,) = (snapshot for snapshot in copy.driver.control.status().snapshots if snapshot.id == ident)
    return found


def refused(copy: Pipeline, said: str, ident: str, name: str = "back", **rewind: object) -> None:
    with pytest.raises(RewindRefused, match=said) as raised:
        asked(copy, ident, name, **rewind)
    assert raised.value.fix and ident not in copy.driver.journal.refresh().snapshots


def refused_and_failed(copy: Rewindable, requests: RewindRequests) -> None:
    control = copy.driver.control
    refused(copy, "apply.suspend is false", "a", toCut="cut0")
    control.suspended = True
    for said, rewind in (
        ("there is no cut 'noon'", {"toCut": "noon"}),
        ("there is no cut at record 1", {"toRecord": 1}),
        ("there is no cut at or before", {"toTime": "1969-01-01T00:00:00Z"}),
    ):
        refused(copy, said, "a", **rewind)

    assert asked(copy, "a", toCut="cut0").state == "Pending"
    refused(copy, "a request of this name is under way", "b", toCut="cut0")
    control.suspended = False
    requests.step()
    late = told(copy, "a")
    assert late.state == "Failed" and late.fault is not None and "was set to false before" in late.fault.message


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_running_driver_goes_back_on_request_while_its_target_is_suspended_and_once(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    copy = Rewindable(filled("giro", "savings"), tmp_path, format, spark)
    with copy.running():
        for step in range(2):
            write(copy.database, step)
            copy.cut(f"cut{step}")
        write(copy.database, 2)
        copy.level()
        present, requests, control = copy.source_rows(), copy.requests(), copy.driver.control
        refused_and_failed(copy, requests)
        assert copy.copied_rows() == present, "nothing was touched"

        control.suspended = True
        assert asked(copy, "c", toCut="cut0").rewind == RewindStatus(cut="cut0", record=record_of(copy, "cut0"))
        requests._client = CaptureClient(tmp_path / "nobody", 1)
        requests.step()
        waits = told(copy, "c")
        assert waits.state == "Pending" and waits.fault is not None and waits.fault.name == CaptureGone.__name__
        assert copy.copied_rows() == copy.held["cut0"] != copy.held["cut1"]
    with copy.running():  # the process before ended between the tables and the record that says so
        requests, control = copy.requests(), copy.driver.control
        control.suspended = True
        requests.step()
        done = told(copy, "c")
        assert (done.tables_done, done.tables_total, done.fault) == (2, 2, None)
        assert [t.applied_record for t in control.status().tables] == [record_of(copy, "cut0")] * 2

        copy.database.commit(Change("U", 1, 6, "later"))
        copy.until(lambda state: state.position >= copy.database.end)
        assert copy.copied_rows() == copy.held["cut0"], "it stays there, and the source is captured"
        assert asked(copy, "c", toCut="cut0").state == "Completed", "the same request again"
        refused(copy, r"carried out before, to cut cut0", "d", toCut="cut0")
        assert asked(copy, "e", name="forth", toCut="cut1").state == "Pending"
        requests.step()
        assert told(copy, "e").state == "Completed" and copy.copied_rows() == copy.held["cut1"]

        control.suspended = False
        copy.level()
        assert copy.copied_rows() == copy.source_rows() and copy.driver.faults() == {}
        control.suspended = True
        refused(copy, r"carried out before, to cut cut1", "f", name="forth", toCut="cut1")
        assert asked(copy, "g", name="once more", toRecord=record_of(copy, "cut0")).state == "Pending"
        requests.step()
        assert told(copy, "g").state == "Completed" and copy.copied_rows() == copy.held["cut0"]
        control.suspended = False
        copy.level()
        assert copy.copied_rows() == copy.source_rows() and copy.driver.faults() == {}, "the same process goes on"


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_rewind_is_stopped_before_its_tables_are_touched_or_is_carried_out_and_remembered(
    spark: SparkSession, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Rewindable(filled("giro", "savings"), tmp_path, format, spark)
    with copy.running():
        copy.cut("noon")
        write(copy.database, 0)
        copy.level()
        present, requests, control = copy.source_rows(), copy.requests(), copy.driver.control
        control.suspended = True
        asked(copy, "a", toCut="noon")
        stands = copy.driver.applier.standing_still

        @contextmanager
        def slowly() -> Iterator[None]:
            """A batch is under way, and the request is deleted meanwhile."""
            with stands():
                control.stop_snapshot("a")
                yield

        monkeypatch.setattr(copy.driver.applier, "standing_still", slowly)
        requests.step()
        assert told(copy, "a").state == "Stopped" and copy.copied_rows() == present
        monkeypatch.setattr(copy.driver.applier, "standing_still", stands)

        asked(copy, "b", toCut="noon")
        found, late = requests._rewinding, list[str]()

        def stopping() -> Any:
            for verb in (control.stop_snapshot, lambda i: control.suspend_snapshot(i, True)):
                with pytest.raises(Retry, match="are going back") as raised:
                    verb("b")
                late.append(raised.value.fix)
            return found()

        requests._rewinding, requests._client = stopping, CaptureClient(tmp_path / "nobody", 1)
        requests.step()
        assert len(late) == 2 and copy.copied_rows() == copy.held["noon"] != present
        with pytest.raises(Retry, match="are going back"):
            control.stop_snapshot("b")
        control.suspended, requests._client = False, copy.driver.client  # before it could be recorded
        requests._backoff.due = 0.0
        requests.step()
        assert told(copy, "b").state == "Completed" and told(copy, "b").fault is None
        copy.level()
        assert copy.copied_rows() == present
        control.suspended = True
        refused(copy, r"carried out before, to cut noon", "c", toCut="noon")


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_rewind_whose_end_was_not_recorded_is_completed_though_apply_goes_on_at_the_next_start(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    copy = Rewindable(filled("giro", "savings"), tmp_path, format, spark)
    with copy.running():
        copy.cut("noon")
        write(copy.database, 0)
        copy.level()
        requests, present = copy.requests(), copy.source_rows()
        copy.driver.control.suspended = True
        asked(copy, "a", toCut="noon")
        requests._client = CaptureClient(tmp_path / "nobody", 1)
        requests.step()
        assert told(copy, "a").state == "Pending" and copy.copied_rows() == copy.held["noon"] != present
    with copy.running():
        requests, control = copy.requests(), copy.driver.control
        for _ in range(5):
            copy.turn()
        assert copy.copied_rows() == copy.held["noon"], "nothing is applied before the rewind was looked at"
        own, requests._client = requests._client, CaptureClient(tmp_path / "nobody", 1)
        requests.step()
        for _ in range(5):
            copy.turn()
        assert copy.copied_rows() == copy.held["noon"], "nor before its end is recorded"
        requests._client, requests._backoff.due = own, 0.0
        requests.step()
        assert told(copy, "a").state == "Completed"
        copy.level()
        assert copy.copied_rows() == present
        control.suspended = True
        refused(copy, r"carried out before, to cut noon", "b", toCut="noon")
        assert asked(copy, "c", name="other", toCut="noon").state == "Pending"
    half = copy.rewind(cut="noon")
    next(half), next(half)
    assert copy.copied_rows() == [copy.held["noon"][0], present[1]]
    with copy.running():
        requests = copy.requests()
        requests.step()
        late = told(copy, "c")
        assert late.state == "Failed" and late.fault is not None and "before all tables had gone" in late.fault.message
        copy.level()
        assert copy.copied_rows() == present


TABLES = """
CREATE TABLE public.plain (id int PRIMARY KEY, v int);
CREATE TABLE public.long (id int PRIMARY KEY, v text);
"""
FILL = "INSERT INTO public.{0} SELECT n, n FROM generate_series(1, 9) n"
AGAIN = "BEGIN; TRUNCATE public.{0}; INSERT INTO public.{0} VALUES (1, 7); COMMIT"
"""The file has rows whenever the catalog is looked at."""


@pytest.mark.turn(0, 2)
def test_a_table_that_is_read_again_for_a_truncate_cannot_go_back_before_it_and_says_so(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path
) -> None:
    postgres.execute(TABLES)
    for name in ("plain", "long"):
        postgres.execute(FILL.format(name))
    place = {"type": "delta", "location": (tmp_path / "lake").as_uri()}
    document: dict[str, Any] = document_of(
        source=postgres.source(),
        storage={"location": (tmp_path / "log").as_uri()},
        tables={"include": ["public.plain", "public.long"]},
        target=place,
    )
    replicator = Replicator.model_validate(document)
    tables = lake(replicator, spark)
    pipeline = Pipeline(document, sources.open(replicator.spec.source, "tailrace test"), tmp_path, tables)

    def rows(name: str) -> dict[int, Any]:
        return by_key(READERS["delta"](tmp_path / "lake" / "public" / name).select(["id", "v"]))

    with pipeline.running():
        settle(pipeline)
        cuts = keeper(pipeline)
        cuts.make("full")
        await_cut(pipeline, cuts, "full")
        first = {name: rows(name) for name in ("plain", "long")}
        for name in first:
            postgres.execute(AGAIN.format(name))

        def read_again(state: Any) -> bool:
            return any(s.plan.reason == "schema" and s.ended is not None for s in state.snapshots.values())

        pipeline.until(read_again, work=True)
        settle(pipeline)
        state = pipeline.state
        ordered = [s.plan.tables for s in state.snapshots.values() if s.plan.reason == "schema"]
        assert {state.tables[i].schema.name for of in ordered for i in of} == {"public.plain"}
        emptied = {name: rows(name) for name in first}
        # As drivers do: what is applied is forgotten.
        Reporter(pipeline.driver.client, pipeline.driver.progress, lambda: 3600.0).report(pipeline.state, force=True)
        pipeline.until(lambda state: any(table.trimmed_record > 0 for table in state.tables.values()))
    assert {len(found) for found in emptied.values()} == {1} and len(first["plain"]) == 9
    with pytest.raises(RewindRefused, match=r"public\.plain cannot go back to cut full: rows of a snapshot were appl"):
        list(rewound(pipeline, lambda: spark, cut="full"))
    assert {name: rows(name) for name in first} == emptied, "nothing was touched"
    assert list(rewound(pipeline, lambda: spark, "public.long", cut="full"))
    assert rows("long") == first["long"], "its TOAST table proves that only TRUNCATE made the file"
    with pipeline.running():
        settle(pipeline)
        assert {name: rows(name) for name in first} == emptied


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seam", "back"), turns(("rewind.before-tables", 0), ("rewind.after-table", 1), ("rewind.before-end", 2))
)
def test_a_driver_killed_in_a_rewind_by_request_is_followed_by_one_that_carries_it_out_once(
    prove: Begin, postgres: PostgresServer, spark: SparkSession, seam: str, back: int
) -> None:
    """`back`: the number of tables that have gone back when it is killed. A whole driver is killed; those before and
    after it are in this process."""
    names = ("plain", "long")
    proof = prove("delta", seed=1, rows=SMALL, tables={"include": [f"public.{name}" for name in names]})
    postgres.execute(TABLES)
    for name in names:
        postgres.execute(FILL.format(name))
    replicator = load_manifest(proof.deployment.manifest).replicator(None)
    document = replicator.model_dump(mode="json", by_alias=True)
    source = sources.open(replicator.spec.source, "tailrace test")
    copy = Pipeline(document, source, proof.deployment.folder, lake(replicator, spark))

    def rows() -> dict[str, Any]:
        folder = proof.deployment.lake / "public"
        return {name: by_key(READERS["delta"](folder / name).select(["id", "v"])) for name in names}

    def versions() -> list[int]:
        folder = proof.deployment.lake / "public"
        return [max(int(path.stem) for path in (folder / name / "_delta_log").glob("*[0-9].json")) for name in names]

    with copy.running():
        settle(copy)
        cuts = keeper(copy)
        cuts.make("noon")
        await_cut(copy, cuts, "noon")
        held = rows()
        for name in names:
            postgres.execute(f"DELETE FROM public.{name} WHERE id < 4")
        settle(copy)
        assert rows() != held
        before = versions()
        requests_of(copy, spark)
        copy.driver.control.suspended = True
        assert asked(copy, "a", toCut="noon").state == "Pending"

    proof.deployment.spec["apply"] = {"suspend": True}
    run = proof.deployment.start(seams=f"{seam}=kill")
    assert run.wait(240) != 0 and list(proof.deployment.marks.iterdir()), run.tail()
    assert sum(versions()) - sum(before) == back
    assert sum(rows()[name] == held[name] for name in names) == back
    proof.deployment.close()  # the node is gone, and capture with it
    postgres.execute("UPDATE public.plain SET v = 70 WHERE id = 7")

    with copy.running():
        requests, control = requests_of(copy, spark), copy.driver.control
        control.suspended = True
        assert told(copy, "a").state == "Pending"
        for _ in range(2):
            requests.step()
            copy.driver.journal.refresh()
            done = told(copy, "a")
            assert (done.state, done.tables_done, done.fault) == ("Completed", 2, None)
            assert rows() == held and versions() == [version + 1 for version in before]
        assert asked(copy, "a", toCut="noon").state == "Completed", "the same request again"
        refused(copy, r"carried out before, to cut noon", "b", toCut="noon")
        control.suspended = False
        settle(copy)
        requests.step()
        assert not proof.differences(*(f"public.{name}" for name in names))


@contextmanager
def away(path: Path) -> Iterator[None]:
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    yield
    aside.rename(path)
