"""An Iceberg REST catalog for tests: Iceberg's own handlers of the protocol, over a JDBC catalog on PostgreSQL."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from demo.ports import free_port
from support.postgres import PostgresServer
from support.process import Program
from tailrace.spark import artifacts

CLIENT, SECRET, TOKEN = "tailrace", "client-secret-0123456789", "rest-token-0123456789"
PROGRAM = Path(__file__).with_name("IcebergRestServer.java")


@dataclass
class IcebergRest:
    """`uri` is for `target.catalog`; a client logs in with `token`, or exchanges `credential` for it."""

    folder: Path
    options: Mapping[str, str]
    """Of the JDBC catalog behind it."""
    port: int = field(default_factory=free_port)
    token: str = TOKEN
    credential: str = f"{CLIENT}:{SECRET}"
    program: Program | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, or start again on the same port."""
        jars = [
            str(Path(pyspark.__file__).parent / "jars" / "*"),
            *artifacts.spark_jars("lake", "s3", "jdbc").split(","),
        ]
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", os.pathsep.join(jars)]
        arguments = [str(self.port), CLIENT, SECRET, TOKEN, str(self.folder)]
        options = [f"{name}={value}" for name, value in self.options.items()]
        self.program = Program.start([*command, str(PROGRAM), *arguments, *options], self.folder / "rest.log")
        self.program.until(self._listens, 60, "the catalog listens")

    def stop(self) -> None:
        """SIGKILL."""
        if self.program is not None:
            self.program.kill()
            self.program = None

    def die_after_the_next_commit(self) -> None:
        """The commit is made, its answer is lost, and the server is gone."""
        self.halting.touch()

    @property
    def halting(self) -> Path:
        return self.folder / "halt-after-commit"

    def ended(self) -> bool:
        assert self.program is not None
        return self.program.poll() is not None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def served(folder: Path, postgres: PostgresServer, files: Mapping[str, str]) -> Iterator[IcebergRest]:
    """A running one. `files`: properties of the access to metadata files (`io-impl`, `warehouse`, `s3.…`)."""
    folder.mkdir()
    options = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{postgres.host}:{postgres.port}/postgres",
        "jdbc.user": "postgres",
        "jdbc.schema-version": "V1",
        **files,
    }
    server = IcebergRest(folder, options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
