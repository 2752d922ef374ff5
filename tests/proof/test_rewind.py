"""Tables that go back to a cut hold what the source held then, and are equal again after the next start.

All of Tailrace in one process; the command by itself, and killed, for Delta, which needs no JVM for it. Whole drivers:
`tests/soak/test_soak_rewind.py`.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.proof.process import ENVIRONMENT, forked
from support.rewinding import Rewindable
from support.scripted_database import Change, Database
from support.scripted_runs import filled
from support.seam_names import checked
from support.versions import turns
from tailrace.driver.asking.rewind import Rewound
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import RewindRefused

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
    with copy.running():
        copy.level()
        assert copy.copied_rows() == present, "replayed"
        copy.database.commit(Change("D", 1, 5), Change("U", 2, 8, "on"))
        copy.level()
        assert copy.driver.faults() == {}
    assert copy.copied_rows() == copy.source_rows()
