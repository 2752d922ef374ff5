"""Composite types as structs (`options[].as`), by chunk and by log, in real tables of both formats, as readers that are
not ours see them: new columns, values that the log leaves out, a type that gets and loses fields, and another copy."""

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
LONG = "x" * 9000


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.postgres(18)
def test_composites_are_structs_to_every_reader(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    postgres.execute('CREATE TYPE public.place AS (n int, "of, it" text, at date)')
    postgres.execute("CREATE TABLE public.t (p public.place, id int PRIMARY KEY, v text, q public.place)")
    postgres.execute("ALTER TABLE public.t ALTER p SET STORAGE EXTERNAL")
    postgres.execute(
        "INSERT INTO public.t VALUES (ROW(1, repeat('x', 9000), NULL), 1, 'v'), (ROW(2, 'b', 'infinity'), 2, 'v'),"
        " (ROW(NULL, NULL, NULL), 3, 'v'), (NULL, 4, 'v')"
    )
    copy = OneTable(postgres, spark, tmp_path, format, {"as": {"p": "struct", "q": "struct"}})

    def rows(*names: str) -> dict[int, tuple[Any, ...]]:
        found = copy.copied().to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == by_spark(spark, format, copy.place)
        return {row["id"]: tuple(row[name] for name in names) for row in found}

    def struct(*values: Any, names: tuple[str, ...] = ("n", "of, it", "at")) -> dict[str, Any]:
        return dict(zip(names, values, strict=True))

    with copy.running():
        nothing = struct(None, None, None)
        assert rows("p") == {1: (struct(1, LONG, None),), 2: (None,), 3: (nothing,), 4: (None,)}
        postgres.execute("UPDATE public.t SET v = 'w' WHERE id = 1")  # the log leaves `p` out
        postgres.execute("UPDATE public.t SET p = ROW(5, '', NULL) WHERE id = 3")
        postgres.execute("DELETE FROM public.t WHERE id = 4")
        assert rows("p") == {1: (struct(1, LONG, None),), 2: (None,), 3: (struct(5, "", None),)}
        postgres.execute("ALTER TABLE public.t DROP v, ADD w int")
        postgres.execute("UPDATE public.t SET q = p, w = 7 WHERE id = 3")
        both = struct(5, "", None)
        assert rows("p", "q", "w") == {
            1: (struct(1, LONG, None), None, None),
            2: (None, None, None),
            3: (both, both, 7),
        }
        postgres.execute("ALTER TYPE public.place DROP ATTRIBUTE at, ADD ATTRIBUTE m numeric(5,2)")  # read again
        postgres.execute("INSERT INTO public.t (id, p) VALUES (5, ROW(6, 'c', 1.5))")
        names = "n", "of, it", "m"
        long, short = struct(1, LONG, None, names=names), struct(5, "", None, names=names)
        again = {1: (long, None), 2: (struct(2, "b", None, names=names), None), 3: (short, short)}

        def fields() -> set[str]:
            found = copy.now().schema.field("p").type
            return {found.field(at).name for at in range(found.num_fields)}

        copy.until(lambda state: fields() == set(names), work=True)
        found = rows("p", "q")
        assert str(found.pop(5)[0]["m"]) == "1.50" and found == again
        postgres.execute("ALTER TYPE public.place RENAME ATTRIBUTE n TO k")
        copy.until(lambda state: fields() == {"k", "of, it", "m"}, work=True)
        assert {key: p and p["k"] for key, (p,) in rows("p").items()} == {1: 1, 2: 2, 3: 5, 5: 6}
