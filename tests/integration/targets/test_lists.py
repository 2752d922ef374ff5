"""Arrays as lists (`options[].as`), by chunk and by log, in real tables of both formats, as readers that are not ours
see them: new columns, values that the log leaves out, a column that becomes a list, and another copy of the table."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.one_table import OneTable
from support.postgres import PostgresServer
from support.spark import by_spark
from support.versions import turns

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
LONG = "repeat('x', 9000)"


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.postgres(18)
def test_arrays_are_lists_to_every_reader(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    postgres.execute("CREATE TABLE public.t (n int[], id int PRIMARY KEY, tags text[], v text, p numeric(9,2)[])")
    postgres.execute("ALTER TABLE public.t ALTER tags SET STORAGE EXTERNAL")
    postgres.execute(
        f"INSERT INTO public.t VALUES ('{{1,NULL}}', 1, ARRAY['a,b', NULL, {LONG}], 'v', '{{1.5,2}}'),"
        " ('{}', 2, NULL, 'v', '{{1,2},{3,4}}')"
    )
    copy = OneTable(postgres, spark, tmp_path, format, {"as": dict.fromkeys(("n", "tags", "p"), "list")})

    def rows(*names: str) -> dict[int, tuple[Any, ...]]:
        found = copy.copied().to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == by_spark(spark, format, copy.place)
        return {row["id"]: tuple(row[name] for name in names) for row in found}

    with copy.running():
        tags = ["a,b", None, "x" * 9000]
        first = rows("n", "tags", "p")
        assert first == {1: ([1, None], tags, first[1][2]), 2: ([], None, None)}
        assert [str(p) for p in first[1][2]] == ["1.50", "2.00"]
        postgres.execute("UPDATE public.t SET v = 'w', n = n || 7 WHERE id = 1")  # the log leaves `tags` out
        postgres.execute("INSERT INTO public.t VALUES (NULL, 3, '{}', 'v', '{NaN}')")
        postgres.execute("DELETE FROM public.t WHERE id = 2")
        assert rows("n", "tags", "p") == {1: ([1, None, 7], tags, first[1][2]), 3: (None, [], None)}
        postgres.execute("ALTER TABLE public.t ADD w int, DROP v")
        postgres.execute("UPDATE public.t SET w = 5, tags = '{NULL}' WHERE id = 3")
        assert rows("n", "tags", "w") == {1: ([1, None, 7], tags, None), 3: (None, [None], 5)}
        postgres.execute("ALTER TABLE public.t ALTER n TYPE text[]")  # elements of another type: read again
        postgres.execute("INSERT INTO public.t (id, n, w) VALUES (4, '{{1},{2}}', 8)")
        copy.until(lambda state: all(t.state == "REPLICATING" for t in copy.driver.control.status().tables), work=True)
        again = {1: (["1", None, "7"], tags, None), 3: (None, [None], 5), 4: (None, None, 8)}
        copy.until(lambda state: rows("n", "tags", "w") == again, work=True)
