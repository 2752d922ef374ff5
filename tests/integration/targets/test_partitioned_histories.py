"""Copies in a lake with a row for each change, partitioned by the days of the commits: readers of a day read its files
alone.

The formats take turns. `tests/unit/targets/lake/engine/test_changes.py` has more logs, without a format;
`tests/soak/test_soak_readers.py` has Spark and DuckDB as readers.
"""

import json
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from support.conforming import LOG, Lake, Subject, log_of
from support.days import DaysLog, begun, differing, grown, iso, partitioned, wanted_days
from support.histories import expected
from support.killed import killed_at
from support.lake import EAGER
from support.versions import turns
from tailrace import targets
from tailrace.batch.applied import FIRST
from tailrace.changelog.history import COMMIT_DAY, COMMIT_TIME, named, stored
from tailrace.contract.resources import TargetSpec
from tailrace.targets.api import Opening, Runtime
from tailrace.targets.lake import table as lake_table
from tailrace.targets.lake.delta import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def eager_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction of two files, and a checkpoint at each tenth version."""
    monkeypatch.setattr(checkpoint, "due", lambda version, metadata: version > 0 and version % 10 == 0)
    monkeypatch.setattr(lake_table, "CompactionLimits", lambda: EAGER)


@pytest.mark.parametrize("subject", turns("delta", "iceberg"), indirect=True)
def test_it_has_each_change_once_and_readers_of_a_day_read_its_files_alone(subject: Lake, tmp_path: Path) -> None:
    """After batches cut at random, compactions within days, and the way back to a cut."""
    log = begun(subject, tmp_path, partitioned())
    grown(log, 7, Random(5))
    assert differing(log) == []
    crowded = of_days(subject)
    for _ in filter(lambda number: number > 1, crowded.values()):
        log.tidy()
    assert of_days(subject) == dict.fromkeys(crowded, 1), "each joined the files of a day"
    at_cut, record = expected(log), log.record
    version = log.target.unit.version_at(log.target.schema.table_id, record)
    assert version is not None and version.number is not None
    log.target.unit.keep(log.target.schema.table_id, {"cut": version.number})
    for _ in range(3):
        log.grow_by_changes(9)
        log.bring()
        log.tidy()
    rewind(subject, log, version.number)
    log.target.restart()
    assert log.target.applied.applied_record == record
    assert differing(log, at_cut) == []
    assert of_days(subject) == dict.fromkeys(crowded, 1)
    log.bring()
    assert differing(log) == []
    check_readers(subject, log)
    assert len(log.chunks) > 1 and len(log.table.schemas) > 1


@pytest.mark.parametrize("subject", ["delta"], indirect=True)
def test_drivers_that_are_killed_around_commits_and_compactions_lose_and_double_no_change(
    subject: Lake, tmp_path: Path
) -> None:
    """SIGKILL of a fork; another driver follows. So many versions that readers begin with a checkpoint."""
    log = begun(subject, tmp_path, partitioned())
    done = list[bool]()
    for turn in range(6):
        for _ in range(2):
            log.grow_by_changes(7)
            log.bring()
        log.grow_by_changes(7)
        seam = ("apply.before-commit", "apply.after-commit", "compact.before-commit")[turn % 3]
        killed_at(seam, log.tidy if turn % 3 == 2 else log.bring)
        log.target.restart()
        done.append(log.target.applied.applied_record == log.record)
        log.bring()
        log.tidy()
    assert done == [False, True, False] * 2
    assert differing(log) == []
    table = DeltaTable(place(subject))
    assert (place(subject) / "_delta_log" / "_last_checkpoint").exists()
    added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    ((name,),) = [{column for column in added[0] if column.startswith("partition.")}]
    assert Counter(str(add[name]) for add in added) == of_days(subject)
    check_readers(subject, log)


@pytest.mark.parametrize("subject", turns("iceberg", "delta"), indirect=True)
def test_partitions_begin_and_end_with_a_generation(subject: Lake, tmp_path: Path) -> None:
    """A resync of a partitioned table, beside the old copy and at once; a table that was not partitioned, and one that
    no longer is."""
    log = begun(subject, tmp_path, partitioned(None))
    log.grow_by_changes(30)
    log.bring()
    assert set(of_days(subject)) == {None}
    for record, keeps, by in ((10, True, "day"), (20, True, "day"), (30, False, None), (40, False, "day")):
        log.begin_generation(record, "day" if by else None, keeps=keeps)
        log.grow_by_changes(25)
        log.bring()
        if keeps:
            log.target.restart()
            log.target.publish()
        log.target.restart()
        log.grow_by_changes(7)
        log.bring()
        assert differing(log) == []
        days = wanted_days(expected(log), stored(log.schema)) if by else {None}
        assert set(of_days(subject)) == set(days)
    check_readers(subject, log)


def rewind(subject: Lake, log: DaysLog, version: int) -> None:
    spec = TargetSpec.model_validate({"type": subject.format, "location": (subject.folder / "lake").as_uri()})
    run = Runtime(log_of(subject.folder), lambda: None, lambda: subject.spark, "postgresql")
    rewinding = targets.open(spec).rewinding(run)
    assert rewinding is not None
    rewinding.find(Opening(log.target.schema, FIRST), LOG, version).restore()


def check_readers(subject: Lake, log: DaysLog) -> None:
    """Rows of a day, and the files that are read for them."""
    schema = stored(log.schema)
    day, at = (named(schema, name) for name in (COMMIT_DAY, COMMIT_TIME))
    rows = wanted_days(expected(log), schema)
    one = sorted(filter(None, rows))[-2]
    paths = {path for path, of in files(subject) if of == one}
    assert 0 < len(paths) < len(files(subject))
    begin = datetime.combine(datetime.fromisoformat(one), time(), UTC)
    if subject.format == "iceberg":
        within = f"{at} >= '{begin.isoformat()}' and {at} < '{(begin + timedelta(1)).isoformat()}'"
        assert planned(subject, within) == planned(subject, f"{day} = '{one}'") == paths
    else:
        assert of_delta_rs(subject, day, one) == (rows[one], paths)


def place(subject: Lake) -> Path:
    return subject.folder / "lake" / "public" / "t"


def of_delta_rs(subject: Lake, name: str, day: str) -> tuple[int, set[str]]:
    table = DeltaTable(place(subject))
    query = f"SELECT count(*) AS n FROM t WHERE {name} = DATE '{day}'"
    (found,) = pa.table(QueryBuilder().register("t", table).execute(query).read_all()).to_pylist()
    paths = table.file_uris(file_pruning_predicate=[(name, "=", day)])
    return found["n"], {Path(path).name for path in paths}


def planned(subject: Lake, where: str) -> set[str]:
    return {Path(task.file.file_path).name for task in iceberg(subject).scan(row_filter=where).plan_files()}


def iceberg(subject: Lake) -> StaticTable:
    metadata = (place(subject) / "metadata").glob("v*.metadata.json")
    return StaticTable.from_metadata(str(max(metadata, key=lambda path: int(path.name.split(".")[0][1:]))))


def files(subject: Lake) -> list[tuple[str, str | None]]:
    """Name and day of each live file."""
    if subject.format == "iceberg":
        tasks = iceberg(subject).scan().plan_files()
        found = [(task.file.file_path, task.file.partition) for task in tasks]
        return [(Path(path).name, None if not len(key) or key[0] is None else iso(key[0])) for path, key in found]
    live: dict[str, str | None] = {}
    for version in sorted((place(subject) / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            if "add" in action:
                live[action["add"]["path"]] = next(iter(action["add"]["partitionValues"].values()), None)
            elif "remove" in action:
                del live[action["remove"]["path"]]
    return [(Path(path).name, day) for path, day in live.items()]


def of_days(subject: Subject) -> Counter[str | None]:
    """The number of files of each day."""
    assert isinstance(subject, Lake)
    return Counter(day for _, day in files(subject))
