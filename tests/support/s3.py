"""A real S3 server over a folder, on loopback, for tests of object storage."""

import socket
from pathlib import Path
from typing import Self

import servers
from demo.ports import free_port
from support.process import Program

ACCESS_KEY = "tailrace-access"
SECRET_KEY = "tailrace-secret-0123456789"
REGION = "us-east-1"


class S3Server:
    """`endpoint`, `access_key`, `secret_key`, `region` and, after `new_bucket()`, `bucket`."""

    def __init__(self, folder: Path) -> None:
        self.access_key = ACCESS_KEY
        self.secret_key = SECRET_KEY
        self.region = REGION
        self.bucket = ""
        self._buckets = 0
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self._log = folder / "versitygw.log"
        self._port = free_port()
        self._process: Program | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start on the port of the first start, so that clients find it again."""
        environment = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command = [str(servers.versitygw()), "--port", f"127.0.0.1:{self._port}", "--region", self.region]
        self._process = Program.start([*command, "posix", str(self.root)], self._log, env=environment)
        self._process.until(self._listens, 20, "versitygw listens", pause=0.02)

    def stop(self) -> None:
        """Stop it, or take the storage away in the middle of a test."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def new_bucket(self, name: str | None = None) -> str:
        """Make an empty bucket: with this server's backend a bucket is a folder."""
        self._buckets += 1
        self.bucket = name or f"bucket-{self._buckets}"
        (self.root / self.bucket).mkdir()
        return self.bucket

    def requests(self) -> list[str]:
        """Method and path of all requests to the current bucket, as the server's log has them."""
        lines = (line.split(" | ") for line in self._log.read_text().splitlines())
        asked = (f"{line[5].strip()} {line[6].strip()}" for line in lines if len(line) > 6)
        return [request for request in asked if f" /{self.bucket}/" in f"{request}/"]

    def hadoop_settings(self) -> dict[str, str]:
        """What S3A needs for the current bucket; kept per bucket, so that one Spark session serves many."""
        prefix = f"fs.s3a.bucket.{self.bucket}."
        return {
            prefix + "endpoint": self.endpoint,
            prefix + "endpoint.region": self.region,
            prefix + "path.style.access": "true",
            prefix + "connection.ssl.enabled": "false",
            prefix + "access.key": self.access_key,
            prefix + "secret.key": self.secret_key,
        }

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
