"""What the session asks of the client, whose connection a script stands for: what an emulator does not have."""

from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa
import pytest
from snowflake.connector import errors

from tailrace.errors import AuthenticationFailed, OutcomeUnknown, Retry, TailraceError, TargetRefused
from tailrace.targets.api import TableFailed
from tailrace.targets.snowflake import session as sessions
from tailrace.targets.snowflake.connect import SETTINGS, SnowflakeConfig, fault
from tailrace.targets.snowflake.session import MOST_SHOWN, SnowflakeSession
from tailrace.targets.snowflake.tables import SnowflakeCopy
from tailrace.targets.sql.described import mark
from tailrace.targets.sql.session import Alteration, AlteredColumn

CONFIG = SnowflakeConfig("o-a", "u", "D", "S", "W", "R", None, "key", "")


SHOWN = [("name",), ("comment",), ("rows",), ("automatic_clustering",)]
"""Columns of SHOW TABLES, as far as they are scripted."""


class Scripted:
    """A connection and its cursors; answers are taken by the beginning of a statement."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers, self.asked = answers, list[str]()
        self.description: list[tuple[str]] = []
        self._found: Any = []

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def execute(self, statement: str, values: Sequence[object] = ()) -> Self:
        self.asked.append(statement)
        given = next((left for begins, left in self.answers.items() if statement.startswith(begins)), None)
        unasked: list[Any] = [] if statement.startswith("SELECT POLICY_NAME") else [(1,)]
        self._found = given.pop(0) if given else unasked
        if isinstance(self._found, Exception):
            raise self._found
        self.description = SHOWN[: len(self._found[0])] if self._found else SHOWN
        return self

    @property
    def rowcount(self) -> int:
        return len(self._found)

    def fetchall(self) -> Any:
        return self._found


def session(monkeypatch: pytest.MonkeyPatch, **answers: list[Any]) -> tuple[SnowflakeSession, Scripted]:
    scripted = Scripted({begins.replace("_", " "): given for begins, given in answers.items()})
    monkeypatch.setattr(sessions, "connect", lambda config: scripted)
    return SnowflakeSession(CONFIG), scripted


def test_own_tables_are_in_a_schema_of_another_name_and_their_case_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch)
    made.run('UPDATE _tailrace.tables SET state = %s FROM _tailrace."chunk_1" c, "x_tailrace.y" WHERE a = 1', "s")
    assert scripted.asked == [
        'UPDATE "S_TAILRACE"."tables" SET state = ? FROM "S_TAILRACE"."chunk_1" c, "x_tailrace.y" WHERE a = 1'
    ]


def test_a_batch_is_one_transaction_that_begins_with_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch)
    with made.batch(lambda: None):
        made.run("INSERT INTO t (a) VALUES (1)")
        assert made.run_one("_tailrace.tables", "state = %s", "state = %s", "b", "a")
        assert scripted.asked == []
    assert scripted.asked == [
        "BEGIN",
        'UPDATE "S_TAILRACE"."fence" SET taken = taken + 1',
        "INSERT INTO t (a) VALUES (1)",
        'UPDATE "S_TAILRACE"."tables" SET state = ? WHERE state = ?',
        "COMMIT",
    ]


def test_a_batch_that_does_not_find_its_state_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, UPDATE_=[[(1,)], []])
    with pytest.raises(Retry, match="another driver has changed"), made.batch(lambda: None):
        made.run_one("_tailrace.tables", "state = %s", "state = %s", "b", "a")
    assert scripted.asked[-1] == "ROLLBACK" and "COMMIT" not in scripted.asked


def test_a_commit_that_is_not_answered_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, COMMIT=[errors.OperationalError("gone", errno=250001)])
    with pytest.raises(OutcomeUnknown), made.batch(lambda: None):
        made.run("INSERT INTO t (a) VALUES (1)")
    assert scripted.asked[-1] == "COMMIT"


def test_a_fence_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = session(monkeypatch, UPDATE_=[[]])
    with pytest.raises(TargetRefused, match=r'"S_TAILRACE"\."fence" is gone') as refused, made.batch(lambda: None):
        made.run("INSERT INTO t (a) VALUES (1)")
    assert '"S_TAILRACE"."fence" (taken) SELECT 0`' in refused.value.fix


VALUE = errors.ProgrammingError("Numeric value", errno=100038, sqlstate="22018")
NAME = errors.ProgrammingError("invalid identifier", errno=904, sqlstate="42000")
RIGHT = errors.ProgrammingError("Insufficient privileges", errno=3001, sqlstate="42501")
PASSING = errors.ProgrammingError("lock timeout", errno=625)


@pytest.mark.parametrize(
    ("error", "kind"), [(VALUE, TargetRefused), (NAME, TargetRefused), (RIGHT, TargetRefused), (PASSING, Retry)]
)
def test_what_a_copy_refuses_at_the_end_is_that_table_s(
    monkeypatch: pytest.MonkeyPatch, error: errors.Error, kind: type[TailraceError]
) -> None:
    made, scripted = session(monkeypatch, INSERT_INTO_u=[error])
    with pytest.raises(TableFailed) as met, made.batch(lambda: None):
        with made.about(7):
            made.run("INSERT INTO t (a) VALUES (1)")
        with made.about(8):
            made.run("INSERT INTO u (a) VALUES (1)")
    assert met.value.table_id == 8 and type(met.value.error) is kind
    assert scripted.asked[-1] == "ROLLBACK" and "COMMIT" not in scripted.asked


@pytest.mark.parametrize(("error", "kind"), [(VALUE, Retry), (NAME, Retry), (PASSING, Retry), (RIGHT, TargetRefused)])
def test_what_is_refused_of_no_table_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: errors.Error, kind: type[TailraceError]
) -> None:
    made, scripted = session(monkeypatch, INSERT=[error])
    with pytest.raises(TailraceError) as met, made.batch(lambda: None):
        with made.about(7):
            made.run("UPDATE t SET a = 1")
        made.run("INSERT INTO _tailrace.logs (log_id) VALUES (1)")
    assert type(met.value) is kind and not getattr(met.value, "away", False) and scripted.asked[-1] == "ROLLBACK"


def test_a_service_that_is_away_is_so_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = session(monkeypatch, INSERT=[errors.OperationalError("gone", errno=250001)])
    with pytest.raises(Retry) as met, made.batch(lambda: None), made.about(7):
        made.run("INSERT INTO t (a) VALUES (1)")
    assert met.value.away


def test_more_tables_than_one_answer_has_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    full = [(f"t{n}", "") for n in range(MOST_SHOWN)]
    made, scripted = session(monkeypatch, SHOW_TABLES=[full, [("last", '{"tailrace":5,"columns":[],"key":[]}')]])
    found = made.relations(["S"])
    assert len(found) == MOST_SHOWN + 1 and found["S", "last"] == 5 and found["S", "t1"] == 0
    assert scripted.asked[1] == f'SHOW TABLES IN SCHEMA "D"."S" LIMIT {MOST_SHOWN} FROM \'t9999\''


def test_a_schema_or_a_database_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = errors.ProgrammingError("does not exist or not authorized", errno=2003)
    made, _ = session(monkeypatch, SHOW_TABLES=[absent], SHOW_DATABASES=[[("OTHER", "")]])
    assert made.relation(("S", "t")) is None
    with pytest.raises(TargetRefused, match="has no database D, or role R may not see it"):
        made.check_place()


@pytest.mark.parametrize(
    ("error", "kind", "away"),
    [
        (errors.ProgrammingError("Session no longer exists.", errno=390111, sqlstate="08001"), Retry, True),
        (errors.ReauthenticationRequest("Master token can never be renewed", errno=390114), Retry, True),
        (errors.ProgrammingError("Numeric value", errno=100038, sqlstate="22018"), TargetRefused, None),
        (errors.ProgrammingError("SQL compilation error", errno=1003, sqlstate="42000"), TargetRefused, None),
        (errors.ProgrammingError("Insufficient privileges", errno=3001), TargetRefused, None),
        (errors.ProgrammingError("No active warehouse selected", errno=606), TargetRefused, None),
        (errors.ProgrammingError("already exists", errno=2002), TargetRefused, None),
        (errors.ProgrammingError("lock timeout", errno=625), Retry, False),
        (errors.OperationalError("connection refused", errno=250001), Retry, True),
    ],
)
def test_an_error_is_what_the_caller_must_do(error: errors.Error, kind: type[TailraceError], away: bool | None) -> None:
    met = fault(CONFIG, error)
    assert type(met) is kind and getattr(met, "away", None) is away and "o-a" in met.message


def test_a_login_that_is_refused_is_no_passing_fault() -> None:
    refused = errors.DatabaseError("JWT token is invalid.", errno=390144)
    assert type(fault(CONFIG, refused, login=True)) is AuthenticationFailed


def test_values_of_rows_are_not_told() -> None:
    met = fault(CONFIG, errors.ProgrammingError("Numeric value 'secret' is not recognized", errno=100038))
    assert "secret" not in str(met) and "Numeric value '…' is not recognized" in met.message


def test_what_stands_in_quotes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch)
    made.run("""UPDATE _tailrace.logs SET a = %s WHERE " _tailrace.x%s" = ' _tailrace.y''%s'""", "s")
    assert scripted.asked == ["""UPDATE "S_TAILRACE"."logs" SET a = ? WHERE " _tailrace.x%s" = ' _tailrace.y''%s'"""]


def test_a_session_has_its_settings_from_nobody_else() -> None:
    """Each of them changes what is written, or how much is read, where an account or a user has another."""
    for name, value in (
        ("AUTOCOMMIT", True),
        ("ROWS_PER_RESULTSET", 0),
        ("DATE_INPUT_FORMAT", "AUTO"),
        ("TIME_INPUT_FORMAT", "AUTO"),
        ("TIMESTAMP_INPUT_FORMAT", "AUTO"),
        ("BINARY_OUTPUT_FORMAT", "HEX"),
        ("ABORT_DETACHED_QUERY", True),
    ):
        assert SETTINGS[name] == value


def test_a_file_of_which_not_all_rows_are_loaded_is_not_taken_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, COPY=[[("Copy executed with 0 files processed.", "")]])
    with pytest.raises(Retry, match="COPY has loaded 0 of 2 rows"):
        made.load("t", [('"a"', "VARCHAR")], [pa.table({"a": ["x", "\\N"]})])
    assert "NULL_IF=()" in scripted.asked[-1]


LOOKS = ("SHOW", "SELECT POLICY_NAME")
"""Beginnings of questions."""
ADDED = Alteration([], [], [f'"b" VARCHAR{mark(2)}'])
TEXT = Alteration([], [AlteredColumn('"id"', '"id"', "VARCHAR", f'"id" VARCHAR{mark(1)}')], [])


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (ADDED, ["CREATE TABLE {} CLONE", 'ALTER TABLE {} ADD COLUMN "b" VARCHAR', "ALTER TABLE {} SET COMMENT = '{{"]),
        (TEXT, ["CREATE TABLE {} (", 'INSERT INTO {} ("id") SELECT CAST("id" AS VARCHAR) FROM "S"."t"']),
    ],
)
def test_what_changes_a_copy_at_its_place_needs_a_table_that_the_next_driver_drops(
    monkeypatch: pytest.MonkeyPatch, change: Alteration, wanted: list[str]
) -> None:
    copy = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0){mark(1)}')
    there = [("t", copy.comment)]
    made, scripted = session(monkeypatch, SHOW_TABLES=[there, [], there, there])
    checks: list[int] = []
    made.alter(("S", "t"), change, lambda: checks.append(len(scripted.asked)))
    asked = [statement for statement in scripted.asked if not statement.startswith(LOOKS)]
    fence, begun = asked[:3], asked[3:]
    assert [one.split()[0] for one in fence] == ["BEGIN", "UPDATE", "COMMIT"], "what is open ends first"
    name = begun[0].split()[2]
    steps = [*(one.format(name) for one in wanted), f'ALTER TABLE "S"."t" SWAP WITH {name}', "DROP TABLE IF EXISTS "]
    assert [one[: len(step)] for one, step in zip(begun, steps, strict=True)] == steps
    assert len(checks) == 2 and name.startswith('"S"."_tailrace_')


def test_a_change_that_snowflake_does_not_do_without_the_rows_is_done_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0){mark(1)}')
    there, cannot = [("t", copy.comment)], errors.ProgrammingError("cannot", errno=2108, sqlstate="22000")
    made, scripted = session(monkeypatch, SHOW_TABLES=[there, [], [], there, there], ALTER=[cannot])
    made.alter(("S", "t"), ADDED, lambda: None)
    asked = [statement.split(" ")[0] for statement in scripted.asked if not statement.startswith(LOOKS)]
    assert asked[3:] == ["CREATE", "ALTER", "CREATE", "INSERT", "ALTER", "DROP"]
    assert scripted.asked[-2].startswith('ALTER TABLE "S"."t" SWAP WITH ')


def test_a_copy_is_made_beside_its_place_and_recorded_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, SHOW_TABLES=[[]])
    recorded: list[tuple[int, int]] = []

    def note(number: int) -> None:
        recorded.append((number, len(scripted.asked)))

    made.create(("S", "t"), f'"id" NUMBER(19,0){mark(1)}', note, keyed=True, opened=())
    looked, created, placed = scripted.asked
    ((number, after),) = recorded
    name = created.split()[2]
    assert looked.startswith("SHOW TABLES LIKE '_tailrace_") and name.startswith('"S"."_tailrace_')
    assert after == 2 and f'{{"tailrace":{number},' in created
    assert placed == f'ALTER TABLE {name} RENAME TO "S"."t"'


@pytest.mark.parametrize(("lost", "change"), [("INSERT", TEXT), ("ALTER", TEXT), ("ALTER", ADDED)])
def test_a_table_that_was_dropped_before_it_became_a_copy_is_no_missing_right(
    monkeypatch: pytest.MonkeyPatch, lost: str, change: Alteration
) -> None:
    copy = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0){mark(1)}')
    there, gone = [("t", copy.comment)], errors.ProgrammingError("does not exist or not authorized", errno=2003)
    made, _ = session(monkeypatch, SHOW_TABLES=[there, [], there, there], **{lost: [gone]})
    with pytest.raises(Retry, match="was to become a copy is gone"):
        made.alter(("S", "t"), change, lambda: None)


def test_a_table_that_is_to_take_its_own_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0){mark(1)}')
    made, scripted = session(monkeypatch, SHOW_TABLES=[[("t", copy.comment)]] * 2)
    made.replace(("S", "t"), ("S", "t"), lambda: None)
    assert scripted.asked == []


COPY = SnowflakeCopy.of_definitions(77, f'"id" NUMBER(19,0){mark(1)}')
THERE = [("t", COPY.comment)]
SET = errors.ProgrammingError(
    "Column 'id' is set as an argument of row access policy S.P", errno=3552, sqlstate="42601"
)
NAMED = errors.ProgrammingError("cannot drop column 'POLICY' or policy_id of \"policy\"", errno=2108, sqlstate="42601")
NO_SUCH_EDITION = errors.ProgrammingError("Unsupported feature 'TOK_POLICY'.", errno=2, sqlstate="0A000")


def test_a_table_with_policies_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that they hide from Tailrace would be lost, and the new table would have none of them."""
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [("u", COPY.comment)], []], SELECT_POLICY=[[("EU",)]] * 2)
    with pytest.raises(TargetRefused, match=r"table S\.t has policies \(EU\)") as refused:
        made.alter(("S", "t"), TEXT, lambda: None)
    assert "drop the policies" in refused.value.fix
    other = SnowflakeCopy.of_definitions(78, f'"id" NUMBER(19,0){mark(1)}')
    scripted.answers["SHOW TABLES"] = [[("u", other.comment)], THERE]
    with pytest.raises(TargetRefused, match=r"table S\.t has policies \(EU\)"):
        made.replace(("S", "t"), ("S", "u"), lambda: None)
    assert not [one for one in scripted.asked if one.startswith(("CREATE", "INSERT", "ALTER", "DROP"))]
    asked = next(one for one in scripted.asked if one.startswith("SELECT POLICY_NAME"))
    assert asked == (
        """SELECT POLICY_NAME FROM TABLE("D".INFORMATION_SCHEMA.POLICY_REFERENCES(REF_ENTITY_NAME => '"D"."S"."t"',"""
        " REF_ENTITY_DOMAIN => 'TABLE'))"
    )


@pytest.mark.parametrize(("error", "written"), [(SET, False), (NAMED, True)])
def test_a_change_that_a_policy_prevents_is_not_done_with_the_rows(
    monkeypatch: pytest.MonkeyPatch, error: errors.Error, written: bool
) -> None:
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [], [], THERE, THERE], ALTER=[error])
    if written:
        made.alter(("S", "t"), ADDED, lambda: None)
    else:
        with pytest.raises(TargetRefused, match=r"has policies that prevent a change of columns: .* access policy"):
            made.alter(("S", "t"), ADDED, lambda: None)
    assert any(one.startswith("INSERT") for one in scripted.asked) == written


def test_a_table_of_which_fewer_rows_are_seen_than_it_has_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [], [("t", COPY.comment, 9)]])
    with pytest.raises(TargetRefused, match=r"table S\.t has 9 rows, of which a query has found 1"):
        made.alter(("S", "t"), TEXT, lambda: None)
    assert not [one for one in scripted.asked if "SWAP" in one] and scripted.asked[-1].startswith("DROP TABLE")


def test_an_edition_without_policies_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [], THERE, THERE], SELECT_POLICY=[NO_SUCH_EDITION])
    made.alter(("S", "t"), TEXT, lambda: None)
    assert any("SWAP" in one for one in scripted.asked)


CLUSTERED = [("t", COPY.comment, 9, "ON")]


@pytest.mark.parametrize(("shown", "resumed"), [(CLUSTERED, True), ([("t", COPY.comment, 9, "OFF")], False)])
def test_a_clone_is_clustered_as_its_source_is(
    monkeypatch: pytest.MonkeyPatch, shown: list[Any], resumed: bool
) -> None:
    """Snowflake suspends it for each clone."""
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [], shown, THERE])
    made.alter(("S", "t"), ADDED, lambda: None)
    altered = [one for one in scripted.asked if one.startswith("ALTER")]
    *_, last, placed = altered
    assert (last == f"ALTER TABLE {altered[0].split()[2]} RESUME RECLUSTER") == resumed and " SWAP WITH " in placed


def test_a_clone_whose_clustering_cannot_be_resumed_takes_the_place_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cannot = errors.ProgrammingError("Insufficient privileges", errno=3001, sqlstate="42501")
    done: list[Any] = [[(1,)], [(1,)], cannot, [(1,)]]
    made, scripted = session(monkeypatch, SHOW_TABLES=[THERE, [], CLUSTERED, THERE], ALTER=done)
    made.alter(("S", "t"), ADDED, lambda: None)
    asked = [one.split()[0] for one in scripted.asked if not one.startswith(LOOKS)]
    assert asked[3:] == ["CREATE", "ALTER", "ALTER", "ALTER", "ALTER", "DROP"]
    assert scripted.asked[-2].startswith('ALTER TABLE "S"."t" SWAP WITH ')


def test_a_right_that_is_missing_for_policies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = errors.ProgrammingError(msg="Insufficient privileges to operate on table 'fence'", errno=3001)
    edition = errors.ProgrammingError(msg="Unsupported feature", errno=2, sqlstate="0A000")
    asking, scripted = session(monkeypatch)
    scripted.answers = {"SELECT POLICY_NAME": [denied, edition]}
    monkeypatch.setattr(asking, "lacks_schema", lambda name: False)
    refused = asking.hidden_policies()
    assert refused is not None and "Insufficient privileges" in refused.message and "Let role R own" in refused.fix
    assert asking.hidden_policies() is None, "an edition without policies has none on any copy"
    assert any('"S_TAILRACE"."fence"' in statement for statement in scripted.asked)
    copy = SnowflakeCopy.of_definitions(7, f'"id" NUMBER(19,0){mark(1)}')
    shown = [{"name": "mine", "comment": "", "owner": "A"}, {"name": "t", "comment": copy.comment, "owner": "A"}]
    monkeypatch.setattr(asking, "_tables", lambda schema: shown)
    other = asking.hidden_policies()
    assert other is not None and "table t belongs to role A, not to R" in other.message
    assert "Let role R own" in other.fix and "GRANT" not in other.fix, "which would not end this"
    monkeypatch.setattr(asking, "lacks_schema", lambda name: True)
    assert asking.hidden_policies() is None


def test_a_schema_of_its_own_that_was_made_before_the_first_start_hides_no_policies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = errors.ProgrammingError("Table 'D.S_TAILRACE.fence' does not exist or not authorized.", errno=2003)
    asking, _ = session(monkeypatch, SHOW_TABLES=[[]], SELECT_POLICY=[absent])
    monkeypatch.setattr(asking, "lacks_schema", lambda name: False)
    assert asking.hidden_policies() is None
