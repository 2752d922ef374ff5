"""Copies in Snowflake's emulator: killed drivers, transactions that are left open, names, what is refused."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from support.conforming import LOG, LogOf, Table
from support.database_copies import settle
from support.lake import table_schema
from support.pipeline import Pipeline
from support.postgres import PostgresServer
from support.random_log import first_schema
from support.snowflake import SnowflakeDatabase, SnowflakeService, private_key
from support.snowflake_driver import Errand, killed_driver
from support.versions import turns
from support.warehouse import (
    REFUSED,
    UNFIT_DATES,
    Several,
    begun,
    exchange_names,
    require_dates_refused,
    require_followed,
    require_overtaken,
    require_policies_outlast,
    require_thrown_away,
)
from tailrace import targets
from tailrace.apply import applier
from tailrace.batch.applied import FIRST
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.resources import Credentials
from tailrace.errors import AuthenticationFailed, Retry, TableStop, TailraceError, TargetRefused
from tailrace.targets.api import Opening, TableFailed, TargetRemoval, UnitBatch
from tailrace.targets.snowflake.connect import connect
from tailrace.targets.snowflake.session import OWN, SnowflakeSession
from tailrace.targets.sql.described import mark
from tailrace.targets.sql.session import Alteration


@pytest.fixture
def copies(tmp_path: Path, snowflake: SnowflakeService) -> SnowflakeDatabase:
    (tmp_path / "log").mkdir()
    return SnowflakeDatabase(tmp_path, snowflake, snowflake.new_schema())


def test_a_killed_driver_leaves_nothing_of_its_batch_or_all_of_it(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    held = copies.rows(table.schema)
    for seam, done in (("apply.before-commit", False), ("apply.after-commit", True)):
        log.grow_by_changes(9)
        before = table.applied.applied_record
        part = cut(log.state, table.schema.table_id, table.applied, log.record)
        assert part is not None
        killed_driver(seam, Errand(copies, table.schema, part))
        table.restart()
        assert (table.applied.applied_record == log.record, table.applied.applied_record == before) == (done, not done)
        assert (copies.rows(table.schema) != held) == done
        table.follow(log)
        held = copies.rows(table.schema)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("seam", "change"),
    turns(
        ("copy.recorded", exchange_names),
        ("snowflake.filled", exchange_names),
        ("snowflake.placed", exchange_names),
        ("snowflake.filled", LogOf._evolve),
        ("snowflake.placed", LogOf._evolve),
    ),
)
def test_a_table_that_a_killed_driver_was_defining_is_whole_after_the_next(
    copies: SnowflakeDatabase, tmp_path: Path, seam: str, change: Callable[[LogOf], None]
) -> None:
    schema, part = first_schema(composite=False), None
    if seam == "copy.recorded":
        killed_driver(seam, Errand(copies, schema, None))
    log, table = begun(copies, tmp_path)
    other = SnowflakeDatabase(tmp_path, copies.server, copies.server.new_schema())
    undisturbed = Table(other, schema)
    log.grow_by_changes(9)
    table.follow(log)
    undisturbed.follow(log)
    change(log)
    log.grow_by_changes(9)
    if seam != "copy.recorded":
        part = cut(log.state, schema.table_id, table.applied, log.record)
        killed_driver(seam, Errand(copies, schema, part))
        table.restart()
    table.follow(log)
    undisturbed.follow(log)
    wanted, found = (sorted(map(repr, each.rows(log.schema))) for each in (other, copies))
    assert found and found == wanted
    assert copies.server.tables(copies.schema) == [schema.table_name]
    assert copies.server.query(f"SELECT count(*) FROM {copies.place('tables', own=True)}") == [(1,)]


def test_a_driver_that_was_overtaken_changes_nothing(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    require_overtaken(copies, tmp_path)


def test_tables_are_changed_together_or_not_at_all(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    several = Several(copies, tmp_path, 3)
    late = copies.units(lambda: None).group()
    assert late is not None
    late.open({i: Opening(schema, FIRST) for i, schema in several._schemas.items()}, LOG)
    batch = several.grow()
    several.unit.apply(batch)
    several.open()
    assert several.held() == [batch.record] * 3
    one, *others = several.rows()
    assert one and others == [one] * 2
    copies.server.query(f"DELETE FROM {copies.place('t0')}")
    with pytest.raises(Retry, match="another driver has changed the state"):
        late.apply(batch)
    assert several.rows() == [[], one, one], "rows of no table, though the first state is compared after them"


def test_a_copy_that_does_not_take_its_rows_is_named_and_the_others_go_without_it(
    copies: SnowflakeDatabase, tmp_path: Path
) -> None:
    several = Several(copies, tmp_path, 3)
    batch = several.grow()
    copies.server.query(f'ALTER TABLE {copies.place("t1")} DROP COLUMN "u"')
    with pytest.raises(TableFailed) as met:
        several.unit.apply(batch)
    assert met.value.table_id == 101 and '"u"' in str(met.value.error)
    assert several.rows() == [[], [], []]
    others = {table_id: part for table_id, part in batch.slices.items() if table_id != 101}
    several.unit.apply(UnitBatch(batch.record, frozenset(others), others))
    one, none, other = several.rows()
    assert one and one == other and none == []


def test_a_transaction_that_was_left_open_holds_the_next_driver_up(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    with closing(connect(copies.server.config())) as left, left.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE {copies.place('fence', own=True)} SET taken = taken + 1")
        with pytest.raises(Retry):
            table.follow(log)
        assert copies.rows(table.schema) == []
        cursor.execute("ROLLBACK")
    table.restart()
    table.follow(log)
    assert copies.rows(table.schema) != []


def test_policies_outlast_a_change_that_would_write_the_table_again(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    def alter(action: str) -> None:
        copies.server.query(f"ALTER TABLE {copies.place(first_schema(composite=False).table_name)} {action}")

    other = SnowflakeDatabase(tmp_path, copies.server, copies.server.new_schema())
    policy, none = 'ADD ROW ACCESS POLICY eu ON ("id")', "DROP ALL ROW ACCESS POLICIES"
    require_policies_outlast(copies, other, tmp_path, lambda: alter(policy), lambda: alter(none))
    assert copies.server.tables(copies.schema) == [first_schema(composite=False).table_name]


@pytest.mark.parametrize(("kind", "number"), UNFIT_DATES)
def test_a_date_that_no_warehouse_has_stops_its_table_by_name(
    copies: SnowflakeDatabase, tmp_path: Path, kind: str, number: int
) -> None:
    require_dates_refused(copies, tmp_path, kind, number)


def test_a_verification_of_a_table_that_changes_meanwhile_is_thrown_away(
    copies: SnowflakeDatabase, tmp_path: Path
) -> None:
    require_thrown_away(copies, tmp_path)


UNNAMED = [("has more than 255 characters", table_schema([("id", "int64"), ("é" * 256, "string")], ["id"]))]


@pytest.mark.parametrize(("why", "schema"), [*REFUSED, *UNNAMED])
def test_a_table_that_cannot_be_copied_is_refused_by_name(
    copies: SnowflakeDatabase, why: str, schema: TableSchema
) -> None:
    with pytest.raises(TableStop, match=why):
        copies.server.target(copies.schema).shown(schema)
    with pytest.raises((TableStop, TableFailed)):
        copies.units(lambda: None).alone().open({schema.table_id: Opening(schema, FIRST)}, LOG)
    assert copies.server.tables(copies.schema) == []


def test_what_is_in_the_way_is_told_before_anything_is_touched(
    copies: SnowflakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, schema = copies.server.target(copies.schema), first_schema(composite=False)
    assert target.examine() and copies.server.tables(copies.schema) == copies.server.tables(copies.schema + OWN) == []
    (costly,) = target.obstacles([schema], None)
    assert costly.level == "warn" and "is suspended 600 s after a statement" in costly.message
    _, table = begun(copies, tmp_path)
    assert target.obstacles([schema], LOG) == [costly]
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        target.obstacles([schema], "log-2")
    with pytest.raises(TargetRefused, match="has copies of change log log-1"):
        copies.units(lambda: None).alone().open({9: Opening(schema, FIRST)}, "log-2")
    copies.server.query(f"DROP TABLE {copies.place(schema.table_name)}")
    copies.server.query(f"CREATE TABLE {copies.place(schema.table_name)} (a NUMBER)")
    found, _ = target.obstacles([schema], LOG)
    assert found.level == "fail" and "that Tailrace has no record of" in found.message
    assert table.unit.missing() == frozenset({schema.table_id})
    for error in (Retry("503"), TargetRefused("nothing is shown", "Grant it.")):

        def refuse(session: SnowflakeSession, error: TailraceError = error) -> None:
            raise error

        monkeypatch.setattr(SnowflakeSession, "suspended_after", refuse)
        same, told = target.obstacles([schema], LOG)
        assert same == found and (told.level, told.fix) == ("warn", error.fix) and error.message in told.message


def test_a_key_that_is_none_is_refused_and_one_with_a_passphrase_is_read(
    copies: SnowflakeDatabase, tmp_path: Path
) -> None:
    key, passphrase = tmp_path / "secret.pem", tmp_path / "secret.pem.passphrase"
    given = copies.server.spec(copies.schema).model_copy(update={"credentials": Credentials(file=str(key))})
    for text in (None, b"no key", private_key(b"open")):
        if text is not None:
            key.write_bytes(text)
        with pytest.raises(AuthenticationFailed, match="the private key of the target"):
            targets.open(given).examine()
    passphrase.write_text("open\n")
    assert targets.open(given).examine()


def test_removal_takes_what_is_its_own_and_nothing_else(copies: SnowflakeDatabase, tmp_path: Path) -> None:
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(4)
    table.follow(log)
    copies.server.query(f"CREATE TABLE {copies.place('other')} (a NUMBER)")
    removal: TargetRemoval = copies.server.target(copies.schema).removal(cast(Any, None))
    name = (table.schema.schema_name, table.schema.table_name)
    owner = removal.owner(name)
    assert owner is not None and owner.log_id == LOG and not owner.altered
    removal.drop(name)
    removal.finish(LOG)
    assert not removal.exists(name) and removal.owner(name) is None
    assert copies.server.tables(copies.schema) == ["other"]
    shown = copies.server.query(f'SHOW SCHEMAS IN DATABASE "{copies.server.database.upper()}"')
    assert copies.schema + OWN not in [row[1] for row in shown]


def test_a_change_of_columns_that_ends_after_its_driver_changes_nothing(
    copies: SnowflakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would put the rows of its beginning in the place of those of later batches."""
    log, table = begun(copies, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    late: list[str] = []

    def execute(self: SnowflakeSession, statement: str, values: Sequence[object] = ()) -> int:
        if " SWAP WITH " in statement:
            late.append(statement)
            raise Retry("the driver was killed")
        return run(self, statement, values)

    run = SnowflakeSession._execute
    place, name = (copies.schema, table.schema.table_name), table.schema.table_name
    with monkeypatch.context() as patched, closing(SnowflakeSession(copies.server.config(copies.schema))) as session:
        patched.setattr(SnowflakeSession, "_execute", execute)
        with pytest.raises(Retry, match="the driver was killed"):
            session.alter(place, Alteration([], [], [f'"b" VARCHAR{mark(99)}']), lambda: None)
    assert len(copies.server.tables(copies.schema)) == 2
    table.restart()
    log.grow_by_changes(9)
    table.follow(log)
    held = copies.rows(table.schema)
    assert copies.server.tables(copies.schema) == [name]
    with (
        closing(SnowflakeSession(copies.server.config(copies.schema))) as session,
        pytest.raises((TargetRefused, Retry)),
    ):
        session._execute(late[0])
    assert copies.rows(table.schema) == held and "b" not in held[0]


def test_names_are_those_of_the_source(copies: SnowflakeDatabase) -> None:
    schema = table_schema([("id", "int64"), ('a "b", c /* column 9 */', "string")], ["id"])
    schema = schema.model_copy(update={"table_name": '%s \\ "x"'})
    unit = copies.units(lambda: None).alone()
    unit.open({schema.table_id: Opening(schema, FIRST)}, LOG)
    assert copies.server.tables(copies.schema) == [schema.table_name]
    place = schema.table_name.replace('"', '""')
    found, _ = copies.server.named(f"SELECT * FROM {copies.place(place)}")
    assert found == [column.name for column in schema.columns]
    assert unit.missing() == frozenset()


@pytest.mark.timeout(300)
def test_a_source_is_copied_with_its_changes_of_columns(
    postgres: PostgresServer, copies: SnowflakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, run = list[str](), SnowflakeSession._asked

    def listen(session: SnowflakeSession, statement: str, values: Sequence[object]) -> tuple[Any, ...]:
        asked.append(statement)
        return run(session, statement, values)

    def read(column: str) -> list[tuple[Any, ...]]:
        return copies.server.query(f'SELECT "id", "{column}" FROM {copies.place("item")} ORDER BY "id"')

    def require_quiet(copy: Pipeline) -> None:
        """The warehouse may be suspended while no copied table changes: SHOW needs none."""
        monkeypatch.setattr(SnowflakeSession, "_asked", listen)
        monkeypatch.setattr(applier, "LOOK_SECONDS", 0.0)
        before = copy.state.number
        postgres.execute("CREATE TABLE public.other (a int)")
        for number in range(5):
            postgres.execute(f"INSERT INTO public.other VALUES ({number})")
            settle(copy)
        assert copy.state.number > before
        assert asked and {statement.split()[0] for statement in asked} == {"SHOW"}

    require_followed(postgres, copies.server.spec(copies.schema), tmp_path, read, require_quiet)
    assert "tags" not in copies.server.named(f"SELECT * FROM {copies.place('item')}")[0]
