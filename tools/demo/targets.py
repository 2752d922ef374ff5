"""The demo's targets: a lake's folder, or a database on a second embedded server; both read by what is not ours."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, Self

import psycopg
import pyarrow as pa

from demo.compare import READERS
from demo.postgres_server import PostgresServer


class Target(AbstractContextManager["Target", None], Protocol):
    """A place for copies of the shop, from its start to its end."""

    reader: str
    """The program that reads them for the verdict."""

    def spec(self) -> dict[str, object]:
        """`spec.target` of a Replicator."""

    def place(self) -> str:
        """A text for people: where the copies can be looked at meanwhile."""

    def read(self, table: str) -> pa.Table:
        """The rows of a table of the shop."""

    def end(self) -> str:
        """A text for people: where the copies are, once they are complete."""


class LakeFolder:
    """Delta or Iceberg tables on this machine."""

    def __init__(self, folder: Path, format: str) -> None:
        self._folder, self._format = folder / "lake", format
        self.reader = {"delta": "delta-rs", "iceberg": "pyiceberg"}[format]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """They stay."""

    def spec(self) -> dict[str, object]:
        return {"type": self._format, "location": self._folder.as_uri()}

    def place(self) -> str:
        return f"{self._folder}/shop"

    def read(self, table: str) -> pa.Table:
        return READERS[self._format](self._folder / "shop" / table)

    def end(self) -> str:
        return f"{self._format} tables are in {self.place()}"


class PostgresCopy:
    """A database of its own, which ends with the demo."""

    reader = "psycopg"

    def __init__(self) -> None:
        self._server = PostgresServer(18)

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._server.execute("CREATE DATABASE copy")
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)

    def spec(self) -> dict[str, object]:
        return {**self._server.source(), "database": "copy"}

    def place(self) -> str:
        return f"postgresql://postgres@{self._server.host}:{self._server.port}/copy until the demo ends"

    def read(self, table: str) -> pa.Table:
        with self._server.connect("copy") as connection:
            names = connection.execute(_COLUMNS, (f"shop.{table}",)).fetchall()
            listed = ", ".join(f'"{name}"::text' if as_text else f'"{name}"' for name, as_text in names)
            rows = connection.execute(f"SELECT {listed} FROM shop.{table}".encode()).fetchall()
        return _table(names, rows)

    def end(self) -> str:
        members = self._server.execute("SELECT count(*) FROM _tailrace.tables WHERE member", dbname="copy")[0][0]
        return f"{members} tables of database copy on port {self._server.port} moved by whole source transactions"


_COLUMNS = """
SELECT attname, atttypid IN ('text'::regtype, 'jsonb'::regtype, 'uuid'::regtype)
  FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def _table(names: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Columns that are text there are of type text here, also where all values are NULL."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    made = [
        pa.array(list(values), pa.string() if as_text else None)
        for (_, as_text), values in zip(names, columns, strict=True)
    ]
    return pa.table(made, names=[name for name, _ in names])


FAULTS: tuple[type[Exception], ...] = (psycopg.Error,)
TYPES = ("delta", "iceberg", "postgresql")


def of_type(kind: str, folder: Path) -> Target:
    return PostgresCopy() if kind == "postgresql" else LakeFolder(folder, kind)
