"""Java classes for the tables that are left to Delta: a log store that creates each version exclusively, on a local
folder and on S3 (docs/decisions/0062), and transactions in two calls.

Delta takes log stores as Java classes by name. Ours is one source file, compiled by the compiler that Spark carries for
its generated code, so neither a JDK nor a build of jars is needed. The session's settings name the class; `install`
must have run before anything opens a Delta table.
"""

import tempfile
import threading
from importlib import resources
from pathlib import Path
from typing import Any

SOURCES = ("ExclusiveLogStore.java", "Transaction.java")
CLASS = "dev.tailrace.ExclusiveLogStore"
_LOCK = threading.Lock()
SETTINGS = {f"spark.delta.logStore.{scheme}.impl": CLASS for scheme in ("file", "s3", "s3a")}


def ensure(jvm: Any) -> None:
    """`install` into a folder of the JVM's temporary files, once in its life: most drivers never need it."""
    system = jvm.java.lang.System
    with _LOCK:
        if system.getProperty(CLASS) is None:
            install(jvm, Path(tempfile.mkdtemp(prefix="classes-", dir=system.getProperty("java.io.tmpdir"))))
            system.setProperty(CLASS, "installed")


def install(jvm: Any, folder: Path) -> None:
    """Compile the class into `folder` and let the JVM's class loader find it there: half a second."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in SOURCES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        source = resources.files("tailrace.targets.lake.delta").joinpath(name)
        compiler.cook(source.read_text("utf-8"))
        for compiled, code in compiler.getBytecodes().items():
            file = folder / f"{compiled.replace('.', '/')}.class"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(code)
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
