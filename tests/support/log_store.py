"""A process that writes to a Delta log on command: `python -m support.log_store CLASS FOLDER HADOOP`. No Spark session.

Each line on its input is a path; it writes its own name there, exclusively, and answers `wrote` or `taken`. After
`replace `, it writes over what is there.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from support.proof.process import ENVIRONMENT
from tailrace.spark import artifacts
from tailrace.targets.lake.delta import classes


class LogStore:
    """A log store of a JVM; `name` is what it writes."""

    def __init__(self, jvm: Any, kind: str, name: str, hadoop: dict[str, str]) -> None:
        self._jvm, self.name = jvm, name
        self._conf = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in hadoop.items():
            self._conf.set(key, value)
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._store = loader.loadClass(kind).getConstructors()[0].newInstance(_array(jvm, self._conf))

    def write(self, path: str, content: str | None = None, overwrite: bool = False) -> str:
        lines = self._jvm.java.util.ArrayList()
        lines.add(self.name if content is None else content)
        try:
            self._store.write(self._jvm.org.apache.hadoop.fs.Path(path), lines.iterator(), overwrite, self._conf)
        except Py4JJavaError as error:
            kind = str(error.java_exception.getClass().getName())
            return "taken" if kind == "java.nio.file.FileAlreadyExistsException" else kind
        return "wrote"


def _array(jvm: Any, value: Any) -> Any:
    made = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.Object"), 1)
    jvm.java.lang.reflect.Array.set(made, 0, value)
    return made


class Writer:
    """Such a process, from outside."""

    def __init__(self, kind: str, folder: Path, hadoop: dict[str, str]) -> None:
        folder.mkdir()
        tests = str(Path(__file__).parents[1])
        environment = ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{tests}"}
        command = [sys.executable, "-m", "support.log_store", kind, str(folder), json.dumps(hadoop)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            end.close()

    def tell(self, path: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def main(kind: str, folder: str, hadoop: str) -> None:
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.jars", artifacts.spark_jars("lake", "s3")).set("spark.master", "local[1]")
    gateway: Any = launch_gateway(conf, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})  # type: ignore[no-untyped-call]  # untyped in pyspark
    classes.install(gateway.jvm, Path(folder))
    store = LogStore(gateway.jvm, kind, Path(folder).name, json.loads(hadoop))
    print("ready", flush=True)
    for line in sys.stdin:
        path = line.strip().removeprefix("replace ")
        print(store.write(path, overwrite=line.startswith("replace ")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
