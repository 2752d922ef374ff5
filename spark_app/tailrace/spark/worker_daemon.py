"""Spark's Python daemon (`spark.python.daemon.module`), without the archives that Spark puts before everything else.

Spark's JVM gives its Python workers a path that begins with `pyspark.zip`, py4j's zip and the jar of its own core.
Before each task a worker forgets what it knows of the folders on its path; for a zip that means reading its list of
files again, in Python: 0.3 s of CPU per task for that jar's thousands of classes. Where pyspark is installed as a
package, as Tailrace needs it, none of the three is of any use.

It also imports what a chunk's task needs before it forks workers: otherwise each of them does, 0.6 s of CPU.
"""

import runpy
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

SPARKS = ("pyspark.zip", "py4j-", "spark-core")
"""The beginnings of the names of Spark's own archives."""
OF_TASKS = ("pyarrow.compute", "tailrace.selection.rows", "tailrace.sources.api", "tailrace.targets.api")
"""Imports of `tailrace.reading.task`; the client of the database comes with the task."""


def without_archives(path: list[str]) -> list[str]:
    """The path without Spark's archives and without those that are not there (as Python's own), or as it is where
    pyspark is found only in one. Those of others stay: what they hold may be needed."""
    rest = [entry for entry in path if not entry.endswith((".zip", ".jar")) or _is_needed(Path(entry))]
    return rest if PathFinder.find_spec("pyspark", rest) is not None else path


def _is_needed(archive: Path) -> bool:
    return archive.exists() and not archive.name.startswith(SPARKS)


def import_for_tasks() -> None:
    for module in OF_TASKS:
        import_module(module)


def main() -> None:
    """Becomes `pyspark.daemon`; its arguments are left as they are."""
    kept = without_archives(sys.path)
    for entry in set(sys.path) - set(kept):
        sys.path_importer_cache.pop(entry, None)
    sys.path[:] = kept
    import_for_tasks()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
