"""A value that its type cannot hold, by a chunk and by the log, in real tables of both formats: NULL for readers that
are not ours, though the source's column is NOT NULL; the table stays healthy, and its status says how many."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from tailrace import sources
from tailrace.changelog.records import Position
from tailrace.contract.resources import Replicator

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.postgres(18)
def test_a_value_in_a_chunk_and_one_in_the_log_become_null_and_are_counted(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE public.t (id int PRIMARY KEY, until date NOT NULL, n numeric(9,2) NOT NULL)")
        connection.execute("INSERT INTO public.t VALUES (1, 'infinity', 1), (2, '2020-02-02', 2)")
    source = {"type": "postgresql", "host": postgres.host, "port": postgres.port, "database": "postgres"}
    document = document_of(
        source=source | {"username": "postgres"},
        tables={"include": ["public.t"]},
        options=[{"match": "*.*", "onUnsupported": "SetNull"}],
        target={"type": format, "location": (tmp_path / "lake").as_uri()},
        storage={"location": (tmp_path / "log").as_uri()},
    )
    replicator = Replicator.model_validate(document)
    copy = Pipeline(document, sources.open(replicator.spec.source, "test"), tmp_path, lake(replicator, spark))

    def rows() -> list[tuple[object, ...]]:
        with copy.source.session() as session:
            end = session.log_end()
        copy.settle(Position(end))
        assert copy.driver.faults() == {}
        found = READERS[format](tmp_path / "lake" / "public" / "t").select(["id", "until", "n"]).sort_by("id")
        return [tuple(map(str, row.values())) for row in found.to_pylist()]

    with copy.running():
        assert rows() == [("1", "None", "1.00"), ("2", "2020-02-02", "2.00")]
        with postgres.connect() as connection:
            connection.execute("INSERT INTO public.t VALUES (3, '2021-03-03', 'NaN')")
            connection.execute("UPDATE public.t SET until = '2019-01-01' WHERE id = 1")
        assert rows() == [("1", "2019-01-01", "1.00"), ("2", "2020-02-02", "2.00"), ("3", "2021-03-03", "None")]
        (table,) = copy.driver.control.status().tables
        assert table.state == "REPLICATING"
        assert [(one.column, one.values) for one in table.nulled] == [("n", 1), ("until", 1)]
