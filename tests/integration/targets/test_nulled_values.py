"""A value that its type cannot hold, by a chunk and by the log, in real tables of both formats: NULL for readers that
are not ours, though the source's column is NOT NULL; the table stays healthy, and its status says how many. Numbers
that the options give another type are such numbers there."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.one_table import OneTable
from support.postgres import PostgresServer
from support.versions import turns

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.postgres(18)
def test_a_value_in_a_chunk_and_one_in_the_log_become_null_and_are_counted(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    with postgres.connect() as connection:
        connection.execute(
            "CREATE TABLE public.t"
            " (id int PRIMARY KEY, until date NOT NULL, n numeric(9,2) NOT NULL, d numeric, f numeric)"
        )
        connection.execute(
            "INSERT INTO public.t VALUES (1, 'infinity', 1, 1.2345, 0.1), (2, '2020-02-02', 2, 1.5, 1e400)"
        )
    copy = OneTable(
        postgres, spark, tmp_path, format, {"onUnsupported": "SetNull", "as": {"d": "decimal(38,3)", "f": "double"}}
    )

    def rows() -> list[tuple[object, ...]]:
        found = copy.copied().select(["id", "until", "n", "d", "f"]).sort_by("id")
        return [tuple(map(str, row.values())) for row in found.to_pylist()]

    with copy.running():
        first, second = ("1", "None", "1.00", "None", "0.1"), ("2", "2020-02-02", "2.00", "1.500", "None")
        assert rows() == [first, second]
        with postgres.connect() as connection:
            number = "9" * 35 + ".123" + "0" * 40
            connection.execute(f"INSERT INTO public.t VALUES (3, '2021-03-03', 'NaN', {number}, 'NaN')")
            connection.execute("UPDATE public.t SET until = '2019-01-01' WHERE id = 1")
        third = ("3", "2021-03-03", "None", "9" * 35 + ".123", "nan")
        assert rows() == [("1", "2019-01-01", *first[2:]), second, third]
        (table,) = copy.driver.control.status().tables
        assert table.state == "REPLICATING"
        assert [(one.column, one.values) for one in table.nulled] == [("d", 2), ("f", 1), ("n", 1), ("until", 1)]
        asked = copy.ask("public.t", mode="Verify")
        copy.until(lambda state: state.snapshots[asked].ended is not None, work=True)
        (verified,) = copy.driver.control.report(asked).tables
        assert (verified.finished, verified.fault, verified.compared.rows) == (True, None, 3), verified
        assert not verified.compared.differences and not verified.compared.undecided, "NULL is what it holds"
