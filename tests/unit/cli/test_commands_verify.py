"""`tailrace verify` of what cannot be compared, with a driver that runs: each refusal has its name and changes nothing,
and what can be compared later waits and says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from support.verified_copy import Commands

ONE = 1


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(filled("one", "two"), tmp_path)
    with made.running():
        yield made


@pytest.fixture
def commands(one: Copy, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    made = Commands(one, capsys)
    yield made
    made.close()


def refused(one: Copy, commands: Commands, *words: str) -> tuple[int, str]:
    """Exit code and error; nothing was planned."""
    before = set(one.state.snapshots)
    code, _, said = commands("verify", *words)
    assert set(one.state.snapshots) == before
    return code, said


def test_a_table_that_is_not_captured_is_refused_by_name(one: Copy, commands: Commands) -> None:
    one.level()
    code, said = refused(one, commands, "--tables", "main.three")
    assert code == 2 and "no captured table matches main.three (captured: main.one, main.two)" in said
    code, said = refused(one, commands, "--tables", "main.one", "main.three", "--repair")
    assert code == 2 and "no captured table matches main.three" in said


def test_only_the_keys_of_the_command_line_are_compared(one: Copy, commands: Commands) -> None:
    one.level()
    code, found = commands.verify("--tables", "main.one", "--keys", "3", "7", "19")
    (table,) = found["tables"]
    assert (code, table["compared"]["rows"], found["sample"]) == (0, 3, None), found
    code, said = refused(one, commands, "--tables", "main.one", "--keys", "3", "--sample", "5%")
    assert code == 2 and "sample goes with mode Verify or Repair, and without keys" in said


def test_a_share_of_the_rows_is_compared_and_the_report_says_so(one: Copy, commands: Commands) -> None:
    one.level()
    code, found = commands.verify("--sample", "40%")
    assert (code, found["sample"]) == (0, 0.4), found
    assert all(table["finished"] for table in found["tables"])
    code, printed, _ = commands("verify", "--sample", "40%")
    assert code == 0 and "a sample of 40% (of small tables all rows): rows that only the target has" in printed


@pytest.mark.parametrize("share", ["0%", "-1%", "101%", "5", "some"])
def test_a_sample_that_is_no_share_is_refused(one: Copy, commands: Commands, share: str) -> None:
    one.level()
    code, said = refused(one, commands, f"--sample={share}")
    assert code == 2 and "sample" in said and share in said


def test_nothing_is_compared_or_repaired_while_the_target_is_suspended(one: Copy, commands: Commands) -> None:
    one.level()
    one.driver.control.suspended = True
    for words in ((), ("--repair",)):
        code, said = refused(one, commands, *words)
        assert code == 1 and "apply.suspend is true" in said and "Fix: Set apply.suspend to false" in said, said
    one.driver.control.suspended = False
    code, found = commands.verify()
    assert code == 0, found


def test_a_table_that_is_still_being_read_is_compared_once_it_is_whole(one: Copy, commands: Commands) -> None:
    """The status says what it waits for meanwhile."""
    hidden = one.database.commit(Change("U", ONE, 3, "hidden"), hidden=True)  # its chunks wait for this
    asked = one.ask("main.one", mode="Verify")
    one.until(lambda _: waits(one), work=True)
    assert one.state.snapshots[asked].ended is None
    one.database.hidden.discard(hidden)
    one.until(lambda state: state.snapshots[asked].ended is not None, work=True)
    (table,) = one.driver.control.report(asked).tables
    assert table.compared.rows and not table.compared.differences and table.fault is None, table


def waits(one: Copy) -> bool:
    return "main.one: the target does not hold it whole yet" in str(one.driver.runner.waiting_for)
