"""A driver in a process alone, as Snowflake's client does not survive a fork: it opens a table, applies one slice, and
dies at the seam that the environment names. `snowflake_driver.py FILE`, a pickled `Errand`."""

import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from os import environ
from pathlib import Path

from support.conforming import Table
from support.seam_names import checked
from support.snowflake import SnowflakeDatabase
from tailrace.batch.slice import TableSlice
from tailrace.changelog.records.terms import TableSchema


@dataclass(frozen=True)
class Errand:
    copies: SnowflakeDatabase
    schema: TableSchema
    part: TableSlice | None
    """None: it dies while it opens the table."""


def killed_driver(seam: str, errand: Errand) -> None:
    """A driver that is on this errand is killed at the seam."""
    file = errand.copies.folder / "errand"
    file.write_bytes(pickle.dumps(errand))
    path = environ | {"TAILRACE_SEAMS": checked(f"{seam}=kill"), "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", "support.snowflake_driver", str(file)], env=path, check=False)
    assert done.returncode == -signal.SIGKILL, f"{seam} was never reached"


if __name__ == "__main__":
    given: Errand = pickle.loads(Path(sys.argv[1]).read_bytes())
    table = Table(given.copies, given.schema)
    assert given.part is not None, "it is open"
    table.apply(given.part)
