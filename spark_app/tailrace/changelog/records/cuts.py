"""The events of cuts: records at which the version of every target table is kept under one name."""

from typing import Literal

from pydantic import Field

from tailrace.changelog.records.terms import Closed, is_false


class CutMade(Closed):
    """The record that holds this event is a cut: every table ends a batch exactly at it."""

    kind: Literal["cut-made"] = "cut-made"
    name: str
    scheduled: bool = Field(default=False, exclude_if=is_false)
    """True if `spec.cuts` called for it, which also has it dropped. Absent in the record if false."""


class CutHeld(Closed):
    """Tables have come to the cut. Without effect for those that it does not wait for."""

    kind: Literal["cut-held"] = "cut-held"
    name: str
    versions: dict[int, int | None] = Field(default_factory=dict)
    """The version that holds the cut, by table id; None: the target keeps no versions."""
    without: dict[int, str] = Field(default_factory=dict)
    """The reason why a table is not in the cut, by table id."""


class CutDropped(Closed):
    """The versions need not be kept any longer."""

    kind: Literal["cut-dropped"] = "cut-dropped"
    name: str


CutEvent = CutMade | CutHeld | CutDropped
