"""How a source server is reached, and how the files of its log are counted."""

from dataclasses import dataclass, replace
from typing import Self

from tailrace.databases.mysql.connect import MyConfig
from tailrace.sources.mysql.position import OWN, Numbering


@dataclass(frozen=True)
class SourceConfig(MyConfig):
    numbering: Numbering = OWN

    def bound_to(self, identity: str, numbering: Numbering = OWN) -> Self:
        """A copy that accepts only this very server."""
        return replace(self, identity=identity, numbering=numbering)
