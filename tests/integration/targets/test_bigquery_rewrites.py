"""Rewrites of BigQuery's tables that their driver has lost sight of: no row that was committed since is lost."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.bigquery import BigQueryDatabase, BigQueryService
from support.conforming import LogOf, Rows, Table
from support.slow_rewrites import ALTERATION, CREATION, REWRITE, TAKEN, SlowRewrites, slow_rewrites
from support.versions import turns
from support.warehouse import begun, exchange_names, rename_column
from tailrace.batch.applied import Generation
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import Retry, TailraceError
from tailrace.targets.api import TableFailed
from tailrace.targets.bigquery.rest import CHANGED

CHANGES: dict[str, Callable[[LogOf], None]] = {REWRITE: exchange_names, ALTERATION: rename_column}
"""Changes of columns by the statement that brings them."""


@pytest.fixture
def slow(request: pytest.FixtureRequest, bigquery: BigQueryService) -> Iterator[SlowRewrites]:
    """`param`: what is lost."""
    assert bigquery.endpoint is not None
    with slow_rewrites(bigquery.endpoint, loses_answer=request.param == "its answer") as service:
        yield service


def behind(slow: SlowRewrites, bigquery: BigQueryService, folder: Path) -> BigQueryDatabase:
    (folder / "log").mkdir()
    return BigQueryDatabase(folder, replace(bigquery, endpoint=slow.endpoint), bigquery.new_dataset())


def in_another_process(work: Callable[[], object]) -> None:
    """Work that fails, by a driver that dies of it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except TailraceError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def in_this_process(work: Callable[[], object]) -> None:
    with pytest.raises((Retry, TableFailed)):
        work()


def until_done(work: Callable[[], object]) -> None:
    for _ in range(5):
        try:
            work()
            return
        except (Retry, TableFailed):
            continue
    raise AssertionError("it is not done")


def publish(copies: BigQueryDatabase, log: LogOf, generation: Generation) -> None:
    """As the next driver does, which may find it done."""
    table = Table(copies, log.schema, generation)
    if table.replacing:
        table.publish()


def rows_in(copies: BigQueryDatabase, log: LogOf) -> Rows:
    return sorted(copies.rows(log.schema), key=repr)


@pytest.mark.parametrize("what", turns(*CHANGES))
@pytest.mark.parametrize(
    ("slow", "lost"), [("its state", in_another_process), ("its answer", in_this_process)], indirect=["slow"]
)
def test_rows_committed_after_a_change_of_columns_whose_end_was_not_seen_stay(
    slow: SlowRewrites,
    bigquery: BigQueryService,
    tmp_path: Path,
    lost: Callable[[Callable[[], object]], None],
    what: str,
) -> None:
    slow.what = what
    copies = behind(slow, bigquery, tmp_path)
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    CHANGES[what](log)
    log.grow_by_changes(9)
    lost(lambda: table.follow(log))
    assert slow.held is not None
    slow.away = False
    until_done(lambda: Table(copies, table.schema).follow(log))
    log.grow_by_changes(9)
    Table(copies, table.schema).follow(log)
    before = rows_in(copies, log)
    slow.end()
    assert before and rows_in(copies, log) == before


@pytest.mark.parametrize("slow", ["its answer"], indirect=True)
def test_rows_committed_after_a_new_copy_took_the_old_one_s_place_stay(
    slow: SlowRewrites, bigquery: BigQueryService, tmp_path: Path
) -> None:
    copies = behind(slow, bigquery, tmp_path)
    log, _ = begun(copies, tmp_path)
    log.grow_by_changes(9)
    log.target.follow(log)
    second = Generation(RecordNumber(4), Seq(log.seq), keeps=True)
    new = log.target = Table(copies, log.schema, second)
    log.record = RecordNumber(4)
    log.table = log.table.model_copy(update={"generation": RecordNumber(4), "added_record": RecordNumber(4)})
    log.grow_by_changes(9)
    new.follow(log)
    in_another_process(new.publish)
    assert slow.held is not None
    slow.away = False
    until_done(lambda: publish(copies, log, second))
    log.grow_by_changes(9)
    Table(copies, log.schema, second).follow(log)
    before = rows_in(copies, log)
    slow.end()
    assert before and rows_in(copies, log) == before


@pytest.mark.parametrize(("what", "answer"), turns((REWRITE, CHANGED), (ALTERATION, CHANGED), (CREATION, TAKEN)))
def test_a_definition_that_arrives_after_its_driver_was_overtaken_begins_nothing(
    bigquery: BigQueryService, tmp_path: Path, what: str, answer: str
) -> None:
    assert bigquery.endpoint is not None
    with slow_rewrites(bigquery.endpoint, begins=False) as slow:
        copies = behind(slow, bigquery, tmp_path)
        slow.what = what
        if what == CREATION:
            in_another_process(lambda: begun(copies, tmp_path))
            slow.away = False
        log, table = begun(copies, tmp_path)
        log.grow_by_changes(9)
        table.follow(log)
        if what != CREATION:
            CHANGES[what](log)
            log.grow_by_changes(9)
            in_another_process(lambda: table.follow(log))
            slow.away = False
            until_done(lambda: Table(copies, table.schema).follow(log))
        before = rows_in(copies, log)
        assert answer in slow.arrive()
        assert before and rows_in(copies, log) == before
