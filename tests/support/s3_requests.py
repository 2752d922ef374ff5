"""Requests to an S3 server by what they are for, and what a cloud would charge for them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from typing_extensions import override

PRICES = {"write": 0.005 / 1000, "read": 0.0004 / 1000, "free": 0.0}
"""US dollars for a request, AWS S3 Standard in us-east-1: PUT, POST and LIST; GET and HEAD; DELETE."""
KINDS = (
    ("record", r"/log/journal/\d+\.json"),
    ("log's rows", r"/log/(segments|bundles)/.*"),
    ("log, else", r"/log/.*"),
    ("data file", r"/lake/.*\.parquet(?<!checkpoint\.parquet)"),
    ("deletion vector", r"/lake/.*\.(bin|puffin)"),
    ("commit", r"/lake/.*/_delta_log/\d+\.json"),
    ("manifest", r"/lake/.*\.avro"),
    ("metadata", r"/lake/.*\.metadata\.json"),
    ("checkpoint", r"/lake/.*/_delta_log/.*checkpoint.*"),
)


LOG = ("record", "log's rows", "log, else")
CHECK = "GET", "record"
"""The driver reads a record, or looks for a newer one than it has, before each commit of a table."""


def _fits(method: str, writes: bool) -> bool:
    return not writes or method == "PUT"


def kind(request: str) -> tuple[str, str]:
    """Verb and object of a request as `S3Server.requests` gives it."""
    method, _, path = request.partition(" ")
    name = next((name for name, pattern in KINDS if re.search(pattern + "$", path)), None)
    if name is None:
        name = {"GET": "listing", "POST": "deletion of many"}.get(method, "other")
    return method, name


def price(method: str, name: str) -> float:
    if method == "DELETE" or name == "deletion of many":
        return PRICES["free"]
    return PRICES["write" if method in ("PUT", "POST") or name == "listing" else "read"]


class Bill:
    """What was asked in some seconds."""

    def __init__(self, requests: Sequence[str], seconds: float) -> None:
        self.kinds, self.seconds = Counter(map(kind, requests)), seconds
        self.records = self.kinds["PUT", "record"]
        self.commits = self.kinds["PUT", "commit"] + self.kinds["PUT", "metadata"]

    def of_log(self, *, writes: bool = False) -> int:
        """Requests for records, made by capture and driver."""
        read = 0 if writes else self.records
        return self._sum(lambda method, name: name in LOG and (method, name) != CHECK and _fits(method, writes)) + read

    def of_tables(self, *, writes: bool = False) -> int:
        """Requests for commits of tables, with the look at the change log before each."""
        looks = self.kinds[CHECK] - self.records  # each record is read once
        return self._sum(lambda method, name: name not in LOG and _fits(method, writes)) + (0 if writes else looks)

    def _sum(self, counts: Callable[[str, str], bool]) -> int:
        return sum(count for kind, count in self.kinds.items() if counts(*kind))

    @property
    def dollars_a_month(self) -> float:
        spent = sum(count * price(*kind) for kind, count in self.kinds.items())
        return spent / self.seconds * 30 * 24 * 3600

    @override
    def __str__(self) -> str:
        lines = [f"{count:>7}  {method:<6} {name}" for (method, name), count in sorted(self.kinds.items())]
        for count, what, asked in (
            (self.commits, "table commits", self.of_tables), (self.records, "records", self.of_log),
        ):  # fmt: skip
            each, written = asked() / max(1, count), asked(writes=True) / max(1, count)
            lines.append(f"{count} {what}, {each:.2f} requests each, of which {written:.2f} are writes")
        return "\n".join([*lines, f"${self.dollars_a_month:.2f} a month at this pace"])
