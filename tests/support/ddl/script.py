"""Scripts of the DDL proofs: SQL, one transaction a line, and what happens to the Replicator in between.

A line is SQL (several statements in one line are one transaction), or begins with `!`:

    !start  !stop  !kill        the whole Replicator
    !settle                     work until nothing is left to do
    !look                       two looks at the catalog, working on
    !gate  !open                from here to there the catalog is not looked at, but for a chunk that needs it
    !turn                       one round of the driver
    !ask s.t                    a SnapshotRequest
    !resync s.t                 one that starts tables over
    !repair HOW                 of the stopped tables, at the end (`REPAIRS`)
    !spec {"options": …}        the manifest from the next start on (merged, one level deep)
    !in NAME: SQL               by another session, which may leave a transaction open

A script ends with everything running and settled; then `run` judges. A refused statement is counted, and fine: the
fuzzer's model of the catalog is not a second PostgreSQL.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from support.ddl.copies import UNCOPIED
from support.ddl.in_process import Broken, InProcess, Refused
from support.ddl.verify import Verdict, verify
from tailrace.changelog.state import LogState
from tailrace.errors import InvalidManifest
from tailrace.sources.postgresql.catalog import discover

Script = Sequence[str]


@dataclass
class Outcome:
    wrong: tuple[str, ...] = ()
    stopped: dict[str, str] = field(default_factory=dict)
    """By name, before the repair."""
    refused: list[str] = field(default_factory=list)
    """Statements that the source refused."""
    repaired: bool = False


class Writer:
    """Runs a script line by line. `strict`: a refused statement is an error of the script."""

    def __init__(self, in_process: InProcess, outcome: Outcome, strict: bool = True) -> None:
        self.in_process = in_process
        self.outcome = outcome
        self._strict = strict
        self._refused = False
        self._repair = "resync"

    def line(self, line: str) -> None:
        """A Replicator that is refused by name stays down until the repair."""
        try:
            self._line(line)
        except Refused as refused:
            self.outcome.stopped["(the Replicator)"] = str(refused)
            self._refused = True
            self.in_process.stop(kill=True)

    def _line(self, line: str) -> None:
        in_process, (verb, _, rest) = self.in_process, line.partition(" ")
        match verb:
            case "!start":
                if in_process.driver is None and not self._refused:
                    _close_transactions(in_process)
                    in_process.start()
            case "!stop" | "!kill":
                in_process.stop(kill=verb == "!kill")
            case "!settle":
                if in_process.driver is not None:
                    _settle(in_process)
            case "!look":
                if in_process.driver is not None:
                    in_process.look()
            case "!gate" | "!open":
                in_process.gate(verb == "!gate")
            case "!turn":
                if in_process.driver is not None:
                    in_process.turn()
            case "!ask" | "!resync":
                if in_process.driver is not None:
                    _ask(in_process, [rest], verb == "!resync", self.outcome)
            case "!repair":
                self._repair = rest
            case "!spec":
                in_process.spec |= json.loads(rest)
            case "!in":
                name, _, statement = rest.partition(": ")
                _sql(in_process, statement, name, self.outcome, self._strict)
            case _:
                _sql(in_process, line, "", self.outcome, self._strict)

    def end(self, fix: Script = ()) -> Outcome:
        """Start what is not running, settle, verify, repair what is stopped by name, verify again. `fix`: what a person
        does at the source for it."""
        outcome = self.outcome
        if not self._refused:
            self.line("!start")
        if not self._refused:
            self.line("!settle")
        if self._refused:
            self._refused = False
            self._fix(fix)
            self._line("!start")
            self._line("!settle")
        assert self.in_process.driver is not None
        verdict = verify(self.in_process, self.in_process.driver.journal.state)
        outcome.stopped |= verdict.stopped
        outcome.wrong = verdict.wrong
        if verdict.stopped and not verdict.wrong:
            self._fix(fix)
            outcome.repaired = True
            again = repaired(self.in_process, verdict, self._repair)
            outcome.wrong = tuple(f"after the repair ({self._repair}): {w}" for w in again)
        return outcome

    def _fix(self, fix: Script) -> None:
        for line in fix:
            _sql(self.in_process, line, "", self.outcome, strict=False)


def run(in_process: InProcess, script: Script, strict: bool = True, fix: Script = ()) -> Outcome:
    writer = Writer(in_process, Outcome(), strict)
    try:
        for line in script:
            writer.line(line)
        return writer.end(fix)
    except Broken as broken:
        writer.outcome.wrong = (f"broken: {broken}",)
        return writer.outcome


def _settle(in_process: InProcess) -> LogState:
    _close_transactions(in_process)
    return in_process.settle()


def _close_transactions(in_process: InProcess) -> None:
    """An open transaction would hold the first chunk of a table back for good."""
    for session in in_process.sessions:
        if not session.closed and session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            session.execute("COMMIT")


def _sql(in_process: InProcess, statement: str, session: str, outcome: Outcome, strict: bool) -> None:
    if why := refusal(in_process.session(session), statement, strict):
        outcome.refused.append(f"{statement}: {why}")


def refusal(connection: psycopg.Connection, statement: str, strict: bool = False) -> str:
    """Why the source refuses the statement, which is rolled back then; empty: it does not. `strict`: it must not."""
    try:
        connection.execute(statement.encode())
    except psycopg.Error as error:
        if strict:
            raise
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            connection.execute("ROLLBACK")
        return str(error).splitlines()[0]
    return ""


def _ask(in_process: InProcess, tables: Sequence[str], resync: bool, outcome: Outcome) -> None:
    """Where none is captured, or all are stopped, a request is refused."""
    try:
        in_process.ask(tables, resync=resync)
    except InvalidManifest as refused:
        outcome.refused.append(f"a request for {', '.join(tables)}: {refused}")


def _resync(in_process: InProcess, names: Sequence[str]) -> None:
    in_process.ask(names, resync=True)


def _resync_and_kill(in_process: InProcess, names: Sequence[str]) -> None:
    """What was accepted is done, whatever dies."""
    in_process.ask(names, resync=True)
    in_process.turn()
    in_process.stop(kill=True)
    in_process.start()


def _out_and_in(in_process: InProcess, names: Sequence[str]) -> None:
    """Out of `tables.include` (here: into `exclude`), then in again, each with a restart."""
    tables = in_process.document["spec"]["tables"]
    in_process.stop()
    in_process.spec["tables"] = tables | {"exclude": [*tables.get("exclude", ()), *names]}
    try:
        in_process.start()
    except Broken as refused:  # these are most of the tables
        code = re.search("set tables.confirmRemoval: '([0-9a-f]+)'", str(refused))
        if code is None:
            raise
        in_process.spec["tables"] |= {"confirmRemoval": code[1]}
        in_process.start()
    _settle(in_process)
    in_process.stop()
    in_process.spec["tables"] = tables
    in_process.start()


REPAIRS: Mapping[str, Callable[[InProcess, Sequence[str]], None]] = {
    "resync": _resync,
    "resync-and-kill": _resync_and_kill,
    "out-and-in": _out_and_in,
}
"""What the documents tell to do when the cause is removed, after `docs/operations.md`."""


def repaired(in_process: InProcess, verdict: Verdict, how: str, more: int = 1) -> tuple[str, ...]:
    """What is wrong after it. What the source or the target does not let be copied may stay stopped; and what a person
    did at the source for it (`fix`) may have stopped others, which are repaired in turn, `more` times."""
    try:
        REPAIRS[how](in_process, sorted(verdict.stopped))
    except InvalidManifest as refused:
        return (str(refused),)
    after = verify(in_process, _settle(in_process))
    spec = in_process.replicator.spec
    unfit = {
        t.name for t in discover(in_process.session("verify"), spec.tables, spec.read_options) if t.stop is not None
    }
    unfit |= {n for n, why in after.stopped.items() if any(text in why for text in UNCOPIED)}
    stopped = {n: why for n, why in after.stopped.items() if n not in unfit}
    others = {n: why for n, why in stopped.items() if n not in verdict.stopped}
    if others == stopped != {} and not after.wrong and more > 0:
        return repaired(in_process, Verdict((), others), how, more - 1)
    return (*after.wrong, *(f"{n} is stopped again: {why}" for n, why in stopped.items()))
