"""Tables that go back to a cut hold what the source held then, and are equal again after the next start.

All of Tailrace in one process; the command by itself, and killed, for Delta, which needs no JVM for it. Whole drivers:
`tests/soak/test_soak_rewind.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.proof.process import ENVIRONMENT, forked
from support.rewinding import Rewindable
from support.scripted import N
from support.scripted_database import Change, Database
from support.scripted_runs import filled
from support.seam_names import checked
from support.versions import turns
from tailrace.batch.applied import Generation
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import RecordNumber
from tailrace.driver.asking.rewind import Rewound
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import RewindRefused
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


@contextmanager
def away(path: Path) -> Iterator[None]:
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    yield
    aside.rename(path)
