"""The move from PostgreSQL 14 to 18 and back, step by step as docs/cutover.md tells it, under some 300 transactions a
second: it prints for how many seconds no program could write, and what took them. Both servers are compared row by row
at each switch.

What else can happen on the way: `test_soak_cutover.py`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.moves import Program, Server, everything, fill, only_read, pair, sales
from support.process import Program as Process
from support.proof.process import ENVIRONMENT, forked
from support.waiting import until

from .test_soak_cutover import Move

PROGRAMS, PAUSE = 8, 0.02
ROWS = (
    "INSERT INTO shop.item (name) SELECT 'item ' || n FROM generate_series(1, 200000) n;"
    " INSERT INTO shop.sale (item, receipt) SELECT n, nextval('shop.receipt') FROM generate_series(1, 200000) n"
)


class Programs:
    """What writes; and how long it could not."""

    def __init__(self, server: Server) -> None:
        self._all = [Program(server, PAUSE) for _ in range(PROGRAMS)]
        self._last = 0.0
        self._uncounted = 0.0

    @property
    def confirmed(self) -> list[tuple[int, int]]:
        return [sale for program in self._all for sale in list(program.confirmed)]

    def sell(self) -> None:
        before, since = len(self.confirmed), time.monotonic()
        until(lambda: len(self.confirmed) > before + 3000, "the programs sell", 120)
        print(f"{(len(self.confirmed) - before) / (time.monotonic() - since):.0f} transactions a second")

    def stop(self) -> None:
        for program in self._all:
            program.server = None
        time.sleep(0.1)  # a sale that is under way
        self._last, self._uncounted = max(program.at for program in self._all), 0.0

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """What nobody does who moves programs."""
        since = time.monotonic()
        yield
        self._uncounted += time.monotonic() - since

    def go(self, server: Server) -> float:
        """Returns the seconds for which none could write."""
        for program in self._all:
            program.at, program.server = 0.0, server
        until(lambda: any(program.at for program in self._all), "the programs sell there", pause=0.001)
        first = min(program.at for program in self._all if program.at)
        return first - self._last - self._uncounted

    def find_everything(self, server: Server) -> None:
        confirmed = self.confirmed
        assert len(set(confirmed)) == len(confirmed)
        assert set(confirmed) <= set(sales(server))

    def end(self) -> None:
        for program in self._all:
            program.ended = True


@contextmanager
def step(name: str) -> Iterator[None]:
    since = time.monotonic()
    yield
    print(f"  {name}: {time.monotonic() - since:.1f} s")


def ready(move: Move) -> Process:
    """The command, which waits for the programs to be stopped."""
    output = move.deployment.folder / "cutover.log"
    output.write_text("")
    here = ["-f", str(move.deployment.manifest), "--run-dir", str(move.deployment.state)]
    command = forked(["cutover", *here], dict(ENVIRONMENT), output)
    command.until(lambda: "everything is ready" in command.tail(), 240, "it is ready")
    return command


def checked(move: Move) -> None:
    """Whoever is told to wait until all tables are replicating tries again."""
    until(lambda: move.cutover("--check")[0] == 0, lambda: move.cutover("--check")[1], 240, pause=2)


def ends(command: Process) -> None:
    assert command.wait(120) == 0, command.tail()


def drop(move: Move, run: Process) -> None:
    """Once the driver has ended, which would be within a minute by itself."""
    run.process.terminate()
    run.wait(60)
    done = move.deployment.command("drop", "-f", str(move.deployment.manifest), "--run-dir", str(move.deployment.state))
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(900)
def test_seconds_for_which_no_program_can_write(tmp_path: Path) -> None:
    old, new = pair("postgresql")
    with old, new:
        fill(old, new)
        old.execute(ROWS)
        programs = Programs(old)
        there, back = Move(tmp_path / "there", old, new), Move(tmp_path / "back", new, old, snapshot={"initial": False})
        try:
            run = there.run()
            programs.sell()
            checked(there)
            command = ready(there)
            programs.stop()
            with step("the old server becomes read-only, the cutover ends"):
                only_read(old)
                ends(command)
            with programs.uncounted():
                assert everything(old) == everything(new)
            with step("the driver ends, tailrace drop"):
                drop(there, run)
            with step("the way back is ready"):
                run = back.deployment.start()
                run.until(back.is_level, 120, "it replicates")
            print(f"14 to 18: no program could write for {programs.go(new):.1f} s")
            programs.sell()
            programs.find_everything(new)
            checked(back)
            command = ready(back)
            programs.stop()
            with step("the new server becomes read-only, the cutover ends"):
                only_read(new)
                ends(command)
            with programs.uncounted():
                assert everything(old) == everything(new)
            only_read(old, now=False)
            print(f"18 to 14: no program could write for {programs.go(old):.1f} s")
            programs.sell()
            programs.find_everything(old)
            drop(back, run)
        finally:
            programs.end()
            there.deployment.close()
            back.deployment.close()
