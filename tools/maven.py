"""Copies jars from the machine's Maven registry into a folder; used by bootstrap.py.

Two ordinary clients can do it: `mvn`, which obeys the machine's `settings.xml` (mirrors, credentials, proxies), and
Ivy, which PySpark carries in its jars. Where somebody configured Maven, Maven is asked first; elsewhere Ivy, which
needs only Java. If the first cannot, the other one is tried. Neither resolves dependencies: the lists are complete.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

Fetch = Callable[[Sequence[str], Path, Path], None]

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tailrace</groupId><artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
POM_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/><caches defaultCacheDir={cache}/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>
"""
IVY_MODULE = """<ivy-module version="2.0"><info organisation="tailrace" module="fetch"/>
<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>
"""
IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->master" transitive="false"/>'


class FetchFailed(Exception):
    """Neither client delivered; the message says what each one said last."""


def fetch(coordinates: Sequence[str], into: Path, scratch: Path, pyspark_jars: Path) -> None:
    """Put `artifact-version.jar` of every coordinate into the existing folder `into`."""
    clients: list[tuple[str, Fetch]] = [("ivy", lambda c, i, s: _with_ivy(c, i, s, pyspark_jars))]
    if shutil.which("mvn"):
        clients.insert(0 if _maven_is_configured() else 1, ("mvn", _with_maven))
    only = os.environ.get("TAILRACE_MAVEN_CLIENT")
    failures = []
    for name, client in clients:
        if only and name != only:
            continue
        try:
            client(coordinates, into, scratch)
            _check(coordinates, into)
            return
        except FetchFailed as error:
            print(f"{name} could not fetch: {error}", file=sys.stderr)
            failures.append(f"{name}: {error}")
    raise FetchFailed("; ".join(failures) or f"TAILRACE_MAVEN_CLIENT={only} is not available here (mvn, ivy)")


def _maven_is_configured() -> bool:
    return (Path.home() / ".m2" / "settings.xml").exists() or bool(os.environ.get("MAVEN_ARGS"))


def _with_maven(coordinates: Sequence[str], into: Path, scratch: Path) -> None:
    pom = scratch / "pom.xml"
    pom.write_text(POM.format(dependencies="".join(POM_DEPENDENCY.format(*c.split(":")) for c in coordinates)))
    _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={into}"])


def _with_ivy(coordinates: Sequence[str], into: Path, scratch: Path, pyspark_jars: Path) -> None:
    ivy_jar = next(iter(sorted(pyspark_jars.glob("ivy-*.jar"))), None)
    if ivy_jar is None:
        raise FetchFailed(f"no ivy-*.jar in {pyspark_jars}")
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.write_text(IVY_SETTINGS.format(cache=quoteattr(str(scratch / "ivy-cache"))))
    dependencies = "".join(IVY_DEPENDENCY.format(*c.split(":")) for c in coordinates)
    module.write_text(IVY_MODULE.format(dependencies=dependencies))
    pattern = f"{into}/[artifact]-[revision].[ext]"
    command = ["java", "-cp", str(ivy_jar), "org.apache.ivy.Main", "-warn"]
    _run([*command, "-settings", str(settings), "-ivy", str(module), "-retrieve", pattern])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise FetchFailed(f"{command[0]} ended with {done.returncode}: {done.stdout.strip()[-2000:]}")


def _check(coordinates: Sequence[str], into: Path) -> None:
    for coordinate in coordinates:
        _, artifact, version = coordinate.split(":")
        jar = into / f"{artifact}-{version}.jar"
        if not jar.is_file() or jar.stat().st_size == 0:
            raise FetchFailed(f"{coordinate} did not arrive as {jar.name}")
