"""The demo's shop in PostgreSQL: what the demo asks of it."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import psycopg
import pyarrow as pa

from demo import shop
from demo.compare import compare_by
from demo.postgres_server import PostgresServer


class PostgresShop:
    """The embedded server and the shop in it: a context manager. `__main__.Source` says what its methods do."""

    title = "PostgreSQL 18"
    faults: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self) -> None:
        self._server = PostgresServer(18)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)

    @property
    def port(self) -> int:
        return self._server.port

    def spec(self) -> dict[str, object]:
        return self._server.source()

    def fill(self, scale: float) -> int:
        with self._server.connect() as connection:
            return shop.create(connection, scale)

    def add_reviews(self, count: int) -> None:
        self._server.execute(shop.REVIEWS.format(reviews=count))

    def load(self, scale: float) -> shop.Load:
        return shop.Load(shop.session_of(self._server.connect), scale)

    def log_end(self) -> int:
        return self.number(str(self._server.execute("SELECT pg_current_wal_insert_lsn()")[0][0]))

    def number(self, position: str) -> int:
        high, low = position.split("/")
        return (int(high, 16) << 32) | int(low, 16)

    def count(self, table: str) -> int:
        return int(self._server.execute(f"SELECT count(*) FROM shop.{table}")[0][0])

    def differences(self, tables: Sequence[str], read: Callable[[str], pa.Table]) -> list[str]:
        with self._server.connect() as connection:
            return compare_by(connection, [f"shop.{table}" for table in tables], lambda _, table: read(table))
