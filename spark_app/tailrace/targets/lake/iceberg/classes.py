"""Tailrace's Java classes for Iceberg (docs/decisions/0058): compiled by the compiler that Spark carries for its
generated code, so neither a JDK nor a build of jars is needed. Half a second when the first catalog is opened.
"""

import threading
from importlib import resources
from typing import Any

_BESIDE = {
    "TailraceLocalFolder.java": "org.apache.hadoop.fs.LocalFileSystem",
    "TailraceFiles.java": "org.apache.iceberg.hadoop.HadoopFileIO",
    "TailraceCatalog.java": "org.apache.iceberg.hadoop.HadoopCatalog",
    "TailraceManifests.java": "org.apache.iceberg.ManifestFiles",
    "TailraceWriter.java": "org.apache.iceberg.BaseRowDelta",
    "TailraceTables.java": "org.apache.iceberg.BaseTable",
}
"""Sources, and the class in whose package each is defined: it uses parts that are shown to nobody else."""
LOCAL = "org.apache.hadoop.fs.TailraceLocalFolder"
FILES = "org.apache.iceberg.hadoop.TailraceFiles"
CATALOG = "org.apache.iceberg.hadoop.TailraceCatalog"
_LOCK = threading.Lock()


def ensure(jvm: Any, hadoop: Any) -> None:
    """Defines them, once in the JVM's life. `hadoop`: the configuration that catalogs get."""
    system = jvm.java.lang.System
    with _LOCK:
        for source, beside in _BESIDE.items():
            if system.getProperty(source) is None:  # each by itself: after a failure the next try tells its cause again
                _define(jvm, source, beside)
                system.setProperty(source, "defined")
        if system.getProperty(LOCAL) is None:
            _use_for_local_folders(jvm, hadoop)
            system.setProperty(LOCAL, "installed")


def _define(jvm: Any, source: str, beside: str) -> None:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(resources.files(__package__).joinpath(source).read_text("utf-8"))
    lookups = jvm.java.lang.invoke.MethodHandles
    lookup = lookups.privateLookupIn(jvm.java.lang.Class.forName(beside, True, loader), lookups.lookup())
    # An inner class first: the outer one is verified at once, and needs it.
    for _, code in sorted(dict(compiler.getBytecodes()).items(), reverse=True):
        lookup.defineClass(code)


def _use_for_local_folders(jvm: Any, hadoop: Any) -> None:
    """Applies to the whole JVM: Hadoop keeps one file system. Executors, who get `hadoop` and have no such class, are
    told nothing of it."""
    ours = jvm.org.apache.hadoop.conf.Configuration(hadoop)
    ours.set("fs.file.impl", LOCAL)
    file_system, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI("file:///")
    file_system.get(root, hadoop).close()  # Spark has asked for it already
    file_system.get(root, ours)
