"""Copies in BigQuery's emulator: killed drivers, divided transactions, names, schema changes, what is refused."""

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support.bigquery import BigQueryDatabase, BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.conforming import LOG, Table
from support.database_copies import settle
from support.killed import killed_at
from support.lake import table_schema
from support.postgres import PostgresServer
from support.random_log import first_schema
from support.versions import turns
from support.waiting import until
from support.warehouse import (
    REFUSED,
    UNFIT_DATES,
    Several,
    begun,
    copying,
    require_dates_refused,
    require_followed,
    require_overtaken,
    require_policies_outlast,
    require_thrown_away,
)
from tailrace import targets
from tailrace.batch.applied import FIRST
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.resources import Credentials
from tailrace.driver.telling import lateness
from tailrace.errors import AuthenticationFailed, Retry, TableStop, TailraceError, TargetRefused
from tailrace.targets.api import NeededChunks, Opening, TableFailed, TargetRemoval
from tailrace.targets.bigquery import pace, rest
from tailrace.targets.bigquery import session as bigquery_session
from tailrace.targets.bigquery.names import written
from tailrace.targets.bigquery.rest import BigQueryClient
from tailrace.targets.bigquery.script import BEGIN
from tailrace.targets.bigquery.session import BigQuerySession
from tailrace.targets.sql.collected import CollectedChange


@pytest.fixture
def copies(tmp_path: Path, bigquery: BigQueryService) -> BigQueryDatabase:
    (tmp_path / "log").mkdir()
    return BigQueryDatabase(tmp_path, bigquery, bigquery.new_dataset())


def test_a_killed_driver_leaves_nothing_of_its_batch_or_all_of_it(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    held = copies.rows(table.schema)
    for seam, done in (("apply.before-commit", False), ("apply.after-commit", True)):
        log.grow_by_changes(9)
        before = table.applied.applied_record
        killed_at(seam, lambda: Table(copies, table.schema).follow(log))
        table.restart()
        assert (table.applied.applied_record == log.record, table.applied.applied_record == before) == (done, not done)
        assert (copies.rows(table.schema) != held) == done
        table.follow(log)
        held = copies.rows(table.schema)
    own = copies.server.tables(f"{copies.dataset}_tailrace")
    assert len([name for name in own if name.startswith("tailrace_")]) <= 4, "those of the killed drivers, which expire"


@pytest.mark.parametrize("unanswered", turns("load job", "script"))
def test_a_job_that_was_done_without_an_answer_counts_once(
    copies: BigQueryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unanswered: str
) -> None:
    """Its id is no other's: the next attempt has tables for itself, and each script insists on the state that was
    read."""
    call, lost = BigQueryClient.call, list[str]()

    def lose(client: BigQueryClient, method: str, path: str, *, upload: bool = False, **more: Any) -> dict[str, Any]:
        said, kind = call(client, method, path, upload=upload, **more), "load job" if upload else ""
        asked = more.get("json", {}).get("configuration", {}).get("query", {}).get("query", "")
        if unanswered == (kind or ("script" if asked.startswith(BEGIN) else "")) and not lost:
            lost.append(unanswered)
            raise Retry.of_place("no answer")
        return said

    monkeypatch.setattr(bigquery_session, "LISTED_ROWS", 0)
    log, table = begun(copies, tmp_path)
    undisturbed = BigQueryDatabase(tmp_path, copies.server, copies.server.new_dataset())
    other = Table(undisturbed, table.schema)
    log.grow_by_changes(9)
    other.follow(log)
    part = cut(log.state, table.schema.table_id, table.applied, log.record)
    assert part is not None
    with monkeypatch.context() as patched:
        patched.setattr(BigQueryClient, "call", lose)
        with pytest.raises((Retry, TableFailed)):
            table.apply(part)
    assert lost and bool(copies.rows(table.schema)) == (unanswered == "script")
    if unanswered == "script":
        with pytest.raises((Retry, TableFailed), match="another driver has changed the state"):
            table.apply(part)
    table.restart()
    table.follow(log)
    assert table.applied.applied_record == log.record
    assert sorted(map(repr, copies.rows(table.schema))) == sorted(map(repr, undisturbed.rows(table.schema)))


def test_staged_rows_that_nothing_needs_are_dropped(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    while len(paths := [str(chunk.path) for chunk, _ in log.chunks if chunk.path is not None]) < 2:
        log._chunk()

    def there() -> set[str]:
        return {name for name in copies.server.tables(f"{copies.dataset}_tailrace") if name.startswith("chunk_")}

    for reading, needed, left in ((True, [], paths), (False, paths[1:], paths[1:]), (False, [], [])):
        table.unit.tidy(table.schema, table.applied, NeededChunks(frozenset(needed), reading=reading), 0.0)
        assert there() == set(left)


@pytest.mark.timeout(300)
@pytest.mark.turn(1, 3)  # the emulator takes long for each batch
def test_batches_stretch_where_the_load_jobs_of_a_day_would_be_used_up_and_the_status_says_so(
    postgres: PostgresServer, bigquery: BigQueryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, over = list[float](), threading.Event()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        over.wait(60)

    monkeypatch.setattr(pace, "AT_ONCE", 0)
    monkeypatch.setattr(rest, "PACE", pace.LoadPace(sleep=wait))
    monkeypatch.setattr(lateness, "LASTING_SECONDS", 0.0)
    monkeypatch.setattr(bigquery_session, "LISTED_ROWS", 0)
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.item (id int PRIMARY KEY, a text)")
    copies = BigQueryCopies.of(bigquery)
    copy = copying(postgres.source(), bigquery.spec(copies.dataset), tmp_path)
    with copy.running():
        settle(copy)
        copy.driver.control.freshness = 0.01
        postgres.execute("INSERT INTO shop.item VALUES (0, 'a')")
        copy.until(lambda _: waits, work=True)
        for number in range(1, 21):
            postgres.execute(f"INSERT INTO shop.item VALUES ({number}, 'a')")
        told = until(lambda: copy.driver.control.status().apply.freshness_missed, "changes are late")
        assert told.endswith(pace.WHY)
        over.set()
        settle(copy)
        assert copies.read("item").num_rows == 21 and len(waits) < 10, "each of the transactions waited by itself"


def test_a_driver_that_was_overtaken_changes_nothing(copies: BigQueryDatabase, tmp_path: Path) -> None:
    require_overtaken(copies, tmp_path)


def test_more_tables_than_a_transaction_may_have_are_divided_and_are_level_in_the_end(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    several = Several(copies, tmp_path, 5, most=2)
    batch = several.grow()
    several.unit.apply(batch)
    several.open()
    assert several.held() == [batch.record] * 5
    assert all(opened.level for opened in several.opened.values())
    one, *others = several.rows()
    assert one and others == [one] * 4
    second = several.grow()
    killed_at("apply.before-commit", lambda: several.unit.apply(second), visit=3)
    several.open()
    assert several.held() == [second.record] * 4 + [batch.record]
    assert [opened.level for opened in several.opened.values()] == [False] * 4 + [True]


def test_a_few_rows_of_a_batch_need_no_load_job(
    copies: BigQueryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several, call, asked = Several(copies, tmp_path, 3), BigQueryClient.call, list[str]()

    def counted(client: BigQueryClient, method: str, path: str, *, upload: bool = False, **more: Any) -> dict[str, Any]:
        asked.append("upload" if upload else f"{method} {path.partition('/')[0]}")
        return call(client, method, path, upload=upload, **more)

    monkeypatch.setattr(BigQueryClient, "call", counted)
    requests = list[int]()
    for most in (50, 0):
        monkeypatch.setattr(bigquery_session, "LISTED_ROWS", most)
        batch = several.grow()
        asked.clear()
        several.unit.apply(batch)
        print(f"{len(asked)} requests of a batch over three tables: {Counter(asked)}")
        assert ("upload" in asked) == (most == 0)
        requests.append(len(asked))
        several.open()
    assert requests[0] < requests[1] / 2
    one, *others = several.rows()
    assert one and others == [one] * 2


def test_a_copy_that_is_gone_when_a_batch_is_sent_is_named_and_the_others_are_as_before(
    copies: BigQueryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several, commit = Several(copies, tmp_path, 3), BigQuerySession._commit
    first = several.grow()
    several.unit.apply(first)
    batch = several.grow()

    def late(session: BigQuerySession, script: Sequence[CollectedChange]) -> None:
        copies.server.query(f"DROP TABLE `{copies.dataset}`.`t1`")
        commit(session, script)

    monkeypatch.setattr(BigQuerySession, "_commit", late)
    with pytest.raises(TableFailed) as failed:
        several.unit.apply(batch)
    assert failed.value.table_id == 101 and isinstance(failed.value.error, Retry)
    assert f"{copies.dataset}.t1" in failed.value.error.message
    several.open()
    assert several.held() == [first.record, 0, first.record]


def test_a_table_that_fails_in_a_later_transaction_names_those_that_an_earlier_one_has_moved(
    copies: BigQueryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several, commit, sent = Several(copies, tmp_path, 5, most=2), BigQuerySession._commit, list[int]()
    first = several.grow()
    several.unit.apply(first)
    several.open()
    batch = several.grow()

    def late(session: BigQuerySession, script: Sequence[CollectedChange]) -> None:
        sent.append(len(script))
        if len(sent) == 2:
            copies.server.query(f"DROP TABLE `{copies.dataset}`.`t3`")
        commit(session, script)

    monkeypatch.setattr(BigQuerySession, "_commit", late)
    with pytest.raises(TableFailed) as failed:
        several.unit.apply(batch)
    assert failed.value.table_id == 103 and failed.value.moved == {100, 101}
    several.open()
    assert several.held() == [batch.record] * 2 + [first.record, 0, first.record]


def test_row_access_policies_outlast_a_change_that_would_write_the_table_again(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    place = f"`{copies.dataset}`.`{first_schema(composite=False).table_name}`"

    def lift() -> None:
        where = place.replace("`", "").replace(".", "/tables/")
        with copies.server.client() as asked:
            asked.call("DELETE", f"datasets/{where}/rowAccessPolicies/eu", params={"force": "true"})

    policy = f"CREATE ROW ACCESS POLICY eu ON {place} GRANT TO ('allUsers') FILTER USING (TRUE)"
    other = BigQueryDatabase(tmp_path, copies.server, copies.server.new_dataset())
    require_policies_outlast(copies, other, tmp_path, lambda: copies.server.query(policy), lift)
    assert copies.server.tables(copies.dataset) == [first_schema(composite=False).table_name]


@pytest.mark.parametrize(("kind", "number"), UNFIT_DATES)
def test_a_date_that_no_warehouse_has_stops_its_table_by_name(
    copies: BigQueryDatabase, tmp_path: Path, kind: str, number: int
) -> None:
    require_dates_refused(copies, tmp_path, kind, number)


def test_a_verification_of_a_table_that_changes_meanwhile_is_thrown_away(
    copies: BigQueryDatabase, tmp_path: Path
) -> None:
    require_thrown_away(copies, tmp_path)


UNNAMED: list[tuple[str, TableSchema]] = [
    ("'Id' and 'id' have the same name|'id' and 'Id'", table_schema([("id", "int64"), ("Id", "string")], ["id"])),
    ("have 300 characters", table_schema([("id", "int64"), ("é" * 60, "string")], ["id"])),
]


@pytest.mark.parametrize(("why", "schema"), [*REFUSED, *UNNAMED])
def test_a_table_that_cannot_be_copied_is_refused_by_name(
    copies: BigQueryDatabase, why: str, schema: TableSchema
) -> None:
    with pytest.raises(TableStop, match=why):
        copies.server.target(copies.dataset).shown(schema)
    with pytest.raises((TableStop, TableFailed)):
        copies.units(lambda: None).alone().open({schema.table_id: Opening(schema, FIRST)}, LOG)
    assert copies.server.tables(copies.dataset) == []


def test_what_is_in_the_way_is_told_before_anything_is_touched(
    copies: BigQueryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, schema = copies.server.target(copies.dataset), first_schema(composite=False)
    assert target.examine() and target.obstacles([schema], None) == []
    _, table = begun(copies, tmp_path)
    assert target.obstacles([schema], LOG) == []
    assert copies.server.tables(copies.dataset) == [schema.table_name], "nothing of what was tried is left"
    lists = table_schema([("id", "int64"), ("tags", "list<string>")], ["id"])
    (warned,) = copies.server.target(copies.dataset, lists="Repeated").obstacles([lists], LOG)
    assert warned.level == "warn" and "'tags' may be NULL in the source" in warned.message
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        target.obstacles([schema], "log-2")
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        copies.units(lambda: None).alone().open({9: Opening(schema, FIRST)}, "log-2")
    elsewhere = copies.server.target(copies.dataset, location="US")
    for look in (elsewhere.examine, lambda: elsewhere.obstacles([schema], LOG)):
        with pytest.raises(TargetRefused, match="is in EU, not in US"):
            look()
    other = copies.server.new_dataset()
    assert copies.server.target(other).examine()
    with copies.server.client() as asked:
        assert asked.dataset(other) is None
        asked.call("POST", "datasets", json={"datasetReference": {"datasetId": other}, "location": "EU"})
    copies.server.query(f"CREATE TABLE `{other}`.`{schema.table_name}` (a INT64)")
    (found,) = copies.server.target(other).obstacles([schema], LOG)
    assert found.level == "fail" and "that Tailrace has no record of" in found.message
    assert table.applied.applied_record == 0
    for error, level in ((Retry("503"), "warn"), (TargetRefused("no table can be created", "Grant it."), "fail")):

        def refuse(session: BigQuerySession, error: TailraceError = error) -> None:
            raise error

        monkeypatch.setattr(BigQuerySession, "hidden_policies", refuse)
        same, told = copies.server.target(other).obstacles([schema], LOG)
        assert same == found and (told.level, told.fix) == (level, error.fix) and error.message in told.message


def test_a_key_that_is_none_is_refused(copies: BigQueryDatabase, tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    spec = copies.server.spec(copies.dataset)
    for text in (None, "{}", "no json"):
        if text is not None:
            key.write_text(text)
        given = spec.model_copy(update={"credentials": Credentials(file=str(key))})
        with pytest.raises(AuthenticationFailed):
            targets.open(given).examine()


def test_removal_takes_what_is_its_own_and_nothing_else(copies: BigQueryDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(4)
    table.follow(log)
    copies.server.query(f"CREATE TABLE `{copies.dataset}`.`other` (a INT64)")
    removal: TargetRemoval = copies.server.target(copies.dataset).removal(cast(Any, None))
    name = (table.schema.schema_name, table.schema.table_name)
    owner = removal.owner(name)
    assert owner is not None and owner.log_id == LOG and not owner.altered
    removal.drop(name)
    removal.finish(LOG)
    assert not removal.exists(name) and removal.owner(name) is None
    assert copies.server.tables(copies.dataset) == ["other"]
    with copies.server.client() as asked:
        assert asked.dataset(f"{copies.dataset}_tailrace") is None


@pytest.mark.timeout(300)
def test_a_source_is_copied_with_its_changes_of_columns(
    postgres: PostgresServer, copies: BigQueryDatabase, tmp_path: Path
) -> None:
    def read(column: str) -> list[tuple[Any, ...]]:
        return copies.server.query(f"SELECT id, `{written(column)}` FROM `{copies.dataset}`.`item` ORDER BY id")

    require_followed(postgres, copies.server.spec(copies.dataset), tmp_path, read)
    assert "tags" not in [field["name"] for field in copies.resource("item")["schema"]["fields"]]
