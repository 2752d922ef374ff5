"""uuids as their bytes and times as times (`options[].as`), by chunk and by log, in real tables, as readers that are
not ours see them: keys that move, values that the log leaves out, columns that come and go, and another copy."""

import datetime as dt
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from support.one_table import OneTable
from support.postgres import PostgresServer
from support.versions import turns

# Threads of apply leave their connections to the JVM to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
NAMES = [UUID(int=number << 120 | 7) for number in (1, 2, 250, 251)]
LAST = dt.time(23, 59, 59, 999999)


@pytest.mark.parametrize("format", turns("delta", "iceberg"))
@pytest.mark.postgres(18)
def test_a_key_of_uuids_and_times_are_what_the_source_has(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    a, b, c, d = (name.bytes for name in NAMES)
    timed = format == "iceberg"  # Delta has no such type
    kinds = {"u": "binary", "w": "binary"} | ({"at": "time"} if timed else {})
    postgres.execute("CREATE TABLE public.t (u uuid PRIMARY KEY, at time, w uuid, v text, n int)")
    postgres.execute("ALTER TABLE public.t ALTER v SET STORAGE EXTERNAL")
    postgres.execute(
        f"INSERT INTO public.t VALUES ('{NAMES[0]}', '23:59:59.999999', NULL, repeat('x', 9000), 1),"
        f" ('{NAMES[1]}', '24:00', '{NAMES[2]}', 'v', 1)"
    )
    copy = OneTable(postgres, spark, tmp_path, format, {"as": kinds})

    def at(value: dt.time | None, text: str | None) -> dt.time | str | None:
        return value if timed else text

    def rows(*names: str) -> dict[bytes, tuple[Any, ...]]:
        found = copy.copied().to_pylist()
        assert sorted(found, key=lambda row: row["u"]) == others(spark, copy.place, timed)
        return {row["u"]: tuple(row[name] for name in names) for row in found}

    with copy.running():
        long = "x" * 9000
        last = at(LAST, "23:59:59.999999")
        assert rows("at", "w", "v") == {a: (last, None, long), b: (at(None, "24:00:00"), c, "v")}
        postgres.execute(f"UPDATE public.t SET u = '{NAMES[3]}' WHERE u = '{NAMES[0]}'")  # the log leaves `v` out
        postgres.execute(f"UPDATE public.t SET at = '00:00', w = '{NAMES[0]}' WHERE u = '{NAMES[1]}'")
        first = at(dt.time(0), "00:00:00")
        assert rows("at", "w", "v") == {d: (last, None, long), b: (first, a, "v")}
        postgres.execute(f"DELETE FROM public.t WHERE u = '{NAMES[1]}'")
        postgres.execute("ALTER TABLE public.t DROP w, ADD w uuid")
        postgres.execute(f"INSERT INTO public.t (u, at, w) VALUES ('{NAMES[2]}', '12:00:00.5', '{NAMES[2]}')")
        noon = at(dt.time(12, 0, 0, 500000), "12:00:00.5")
        assert rows("at", "w") == {d: (last, None), c: (noon, c)}
        copy.ask("public.t")
        assert rows("at", "w") == {d: (last, None), c: (noon, c)}


def others(spark: SparkSession, place: Path, timed: bool) -> list[dict[str, Any]]:
    """By Spark. It reads no Iceberg table with a column of times: by Iceberg's own reader of rows there."""
    if not timed:
        return list(spark.sql(f"SELECT * FROM delta.`{place}` ORDER BY u").toArrow().to_pylist())
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).load(str(place))
    names = [field.name() for field in table.schema().columns()]
    with closing(iceberg.data.IcebergGenerics.read(table).build()) as records:
        each = records.iterator()
        found = list[dict[str, Any]]()
        while each.hasNext():
            record = each.next()
            found.append({name: python(record.getField(name)) for name in names})
    return sorted(found, key=lambda row: row["u"])


def python(value: Any) -> Any:
    if value is None or isinstance(value, int | str | bytes):
        return value
    if value.getClass().getSimpleName() == "LocalTime":
        return (dt.datetime.min + dt.timedelta(microseconds=value.toNanoOfDay() / 1000)).time()
    return bytes(value.array())
