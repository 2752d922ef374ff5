"""A proof's change log and tables in the current bucket of an S3 server."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from demo.compare import read_delta
from support.s3 import S3Server


@dataclass
class OnS3:
    s3: S3Server
    keys: Path
    """The credentials' file; `write_keys` makes it."""

    def write_keys(self) -> None:
        self.keys.write_text(f"accessKeyId={self.s3.access_key}\nsecretAccessKey={self.s3.secret_key}\n")

    @property
    def folder(self) -> Path:
        """The bucket as the server keeps it."""
        return self.s3.root / self.s3.bucket

    def place(self, path: str) -> dict[str, object]:
        """`spec.storage`, or the part of `spec.target` that says where."""
        return {
            "location": f"s3://{self.s3.bucket}/{path}",
            "endpoint": self.s3.endpoint,
            "region": self.s3.region,
            "pathStyle": True,
            "credentials": {"file": str(self.keys)},
        }

    @property
    def delta_options(self) -> dict[str, str]:
        """For delta-rs."""
        return {
            "AWS_ENDPOINT_URL": self.s3.endpoint,
            "AWS_REGION": self.s3.region,
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def iceberg_properties(self) -> dict[str, str]:
        """For pyiceberg."""
        return {
            "s3.endpoint": self.s3.endpoint,
            "s3.access-key-id": self.s3.access_key,
            "s3.secret-access-key": self.s3.secret_key,
            "s3.region": self.s3.region,
            "s3.force-virtual-addressing": "false",
        }

    def delta(self, schema: str, table: str) -> pa.Table:
        """The rows of the Delta table below `lake`, by delta-rs."""
        return self.delta_below("lake")(schema, table)

    def delta_below(self, prefix: str) -> Callable[[str, str], pa.Table]:
        options = self.delta_options
        place = f"s3://{self.s3.bucket}/{quote(prefix)}"  # delta-rs takes a location for a URL
        return lambda schema, table: read_delta(f"{place}/{schema}/{table}", options)
