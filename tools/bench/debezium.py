"""Debezium as a peer of a database target: its engine reads the source, its JDBC sink writes the target, in one JVM of
its own and without Kafka in between, which a user would have as well (`DebeziumToDatabase.java`).

`bench.databases --only debezium` uses it. Jars come from the machine's Maven registry, once.
"""

import subprocess
from pathlib import Path

VERSION = "3.5.0.Final"
PARTS = ("debezium-api", "debezium-embedded", "debezium-connector-postgres", "debezium-connector-jdbc")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tailrace</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>io.debezium</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
MAIN = "DebeziumToDatabase"
CACHE = Path.home() / ".cache" / "tailrace" / f"debezium-{VERSION}"


def prepared() -> list[str]:
    """The beginning of a command: Java, with the class path and the class."""
    jars, classes = CACHE / "jars", CACHE / "classes"
    if not jars.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        pom = CACHE / "pom.xml"
        pom.write_text(POM.format("".join(DEPENDENCY.format(part, VERSION) for part in PARTS)))
        fetched = CACHE / "fetched"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        subprocess.run([*command, "-DincludeScope=runtime"], check=True)
        fetched.rename(jars)
    source = Path(__file__).with_name(f"{MAIN}.java")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
    return ["java", "-Xmx1g", "-cp", f"{classes}:{jars}/*", MAIN]


def properties(source: tuple[str, int, str], target: tuple[str, int, str]) -> dict[str, str]:
    """Settings for one table, `public.t`, of which the target has an empty one. Places are host, port and database."""
    (host, port, database), (into_host, into_port, into) = source, target
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "offset.flush.interval.ms": "1000",
        "topic.prefix": "bench",
        "database.hostname": host,
        "database.port": str(port),
        "database.dbname": database,
        "database.user": "postgres",
        "database.password": "unused",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.t",
        "tombstones.on.delete": "false",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "poll.interval.ms": "50",
        "snapshot.fetch.size": "20000",
        "sink.connection.url": f"jdbc:postgresql://{into_host}:{into_port}/{into}?reWriteBatchedInserts=true",
        "sink.connection.username": "postgres",
        "sink.connection.password": "unused",
        "sink.insert.mode": "upsert",
        "sink.delete.enabled": "true",
        "sink.primary.key.mode": "record_key",
        "sink.schema.evolution": "none",
        "sink.collection.name.format": "t",
        "sink.batch.size": "8192",
        "sink.use.reduction.buffer": "true",
    }
