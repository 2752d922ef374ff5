"""The way to reach a server: the base of both products' configurations (`PgConfig`, `MysqlConfig`)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from tailrace.contract.places import ServerSpec
from tailrace.databases.secret_files import secret_files


@dataclass(frozen=True)
class ServerConfig:
    """One database as the manifest names it. Picklable; holds no secret."""

    host: str
    port: int
    database: str | None
    username: str
    program: str = "tailrace"
    """The name that the server shows for Tailrace's connections."""
    password_file: str | None = None
    """None: no password is sent."""
    tls_mode: str = "prefer"
    ca_file: str | None = None
    cert_file: str | None = None
    """The client's certificate, with its key in `key_file`: both or none."""
    key_file: str | None = None
    part: Literal["source", "target"] = "source"
    """The part of the manifest that names it."""

    @classmethod
    def of(
        cls,
        server: ServerSpec,
        program: str = "tailrace",
        secrets: Path | None = None,
        part: Literal["source", "target"] = "source",
    ) -> Self:
        """`secrets`: folder in which Secret `name` is mounted as `name/<key>`."""
        files = secret_files(server, secrets, part)
        return cls(
            host=server.host,
            port=server.tcp_port,
            database=server.database,
            username=server.username,
            program=program,
            password_file=files.password,
            tls_mode=server.tls.mode,
            ca_file=files.ca,
            cert_file=files.certificate,
            key_file=files.key,
            part=part,
        )

    def named(self, program: str) -> Self:
        return replace(self, program=program)
