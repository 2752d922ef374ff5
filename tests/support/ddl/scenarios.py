"""Directed scenarios: what is known to change rows, or their meaning, without a row event. The text is `scenarios.txt`.

Every scenario runs `between` two looks at the catalog, `over` several looks, and while everything is `stopped` or was
`killed`; what it expects is always the same: source = target, or the table is stopped by name and equal after the
documented repair. Those that one Replicator can hold side by side are packed: each gets schemas of its own.

A block begins with `# name`. `setup`, `step`, `after` (written when all is running and settled again) and `fix` (what a
person does at the source for a table that is stopped) are SQL, one transaction a line; `@word` stands for the lines of
that macro. `exclude` and `include` are patterns of the manifest, `given` puts the scenario under a publication that the
user made, `spec` is more of the manifest, `solo` keeps it out of packs, `since` names the first version that knows its
statements, or that can read its log past them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

TIMINGS = ("between", "over", "stopped", "killed")
GIVEN: dict[str, Any] = {"source": {"postgresql": {"publication": "given"}}}
_AROUND = {
    "between": ("!gate", "!open"),
    "over": ("!look", "!look"),
    "stopped": ("!stop", "!start"),
    "killed": ("!kill", "!start"),
}


@dataclass
class Scenario:
    name: str
    setup: list[str] = field(default_factory=list)
    step: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    fix: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=lambda: ["s.*"])
    exclude: list[str] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    timings: tuple[str, ...] = TIMINGS
    given: bool = False
    solo: bool = False
    since: int = 14

    def within(self, number: int) -> "Scenario":
        """The same in schemas of its own: `s` becomes `s7`, `o` becomes `o7`."""

        def moved(lines: list[str]) -> list[str]:
            # Not after a dot, a quote or a letter: schemas only.
            return [re.sub(r"(?<![\w.'])(s2|s|o)(?=\.|$|;| RENAME)", rf"\g<1>_{number}", x) for x in lines]

        return Scenario(
            f"{self.name}", moved(self.setup), moved(self.step), moved(self.after), moved(self.fix),
            moved(self.include), moved(self.exclude), self.spec, self.timings, self.given, self.solo,
        )  # fmt: skip

    def takes(self, name: str, number: int) -> bool:
        """Whether a table of this name is one of the scenario's, as the `number`th of a pack."""
        return name.split(".", maxsplit=1)[0] in (f"s_{number}", f"o_{number}", f"s2_{number}")


def read() -> list[Scenario]:
    macros: dict[str, list[str]] = {}
    found: list[Scenario] = []
    macro: list[str] = []
    for line in (Path(__file__).parent / "scenarios.txt").read_text().splitlines():
        if line.startswith("@"):
            macro = macros.setdefault(line[1:], [])
        elif line.startswith("    "):
            macro.append(line.strip())
        elif line.startswith("# "):
            found.append(Scenario(line[2:]))
        elif line:
            _field(found[-1], line, macros)
    return found


def _field(scenario: Scenario, line: str, macros: dict[str, list[str]]) -> None:
    name, _, text = line.partition(": ")
    match name:
        case "setup" | "step" | "after" | "fix":
            lines: list[str] = getattr(scenario, name)
            lines += macros[text[1:]] if text.startswith("@") else [text]
        case "include" | "exclude":
            getattr(scenario, name).extend(text.split())
        case "timings":
            scenario.timings = tuple(text.split())
        case "spec":
            scenario.spec = json.loads(text)
        case "since":
            scenario.since = int(text)
        case "given" | "solo":
            setattr(scenario, name, True)
        case _:
            raise ValueError(f"{scenario.name}: {line}")


@dataclass(frozen=True)
class Pack:
    """Scenarios that one Replicator holds side by side, each in its own schemas."""

    scenarios: Sequence[Scenario]
    spec: dict[str, Any]

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> "Pack":
        inside = [scenario.within(number) for number, scenario in enumerate(scenarios)]
        tables = {"include": [p for s in inside for p in s.include], "exclude": [p for s in inside for p in s.exclude]}
        # A few chunks for each of the larger tables: many of all would take most of the time.
        merged: dict[str, Any] = {"tables": tables, "snapshot": {"chunkRows": 15, "parallelism": 6}}
        for scenario in inside:
            merged |= scenario.spec | (GIVEN if scenario.given else {})
        return cls(inside, merged)

    def script(self, timing: str) -> Iterator[str]:
        yield from (f"CREATE SCHEMA s_{number}" for number in range(len(self.scenarios)))
        if any(scenario.given for scenario in self.scenarios):
            yield "CREATE PUBLICATION given WITH (publish_via_partition_root = true)"
        for scenario in self.scenarios:
            yield from scenario.setup
        yield from ("!start", "!settle")
        before, after = _AROUND[timing]
        yield before
        for steps in zip_longest(*(scenario.step for scenario in self.scenarios)):
            yield from filter(None, steps)
            if timing == "over":
                yield "!look"
        yield from (after, "!settle")
        for scenario in self.scenarios:
            yield from scenario.after

    @property
    def fix(self) -> list[str]:
        return [line for scenario in self.scenarios for line in scenario.fix]

    def by_scenario(self, wrong: Sequence[str]) -> list[str]:
        """The same lines, each under its scenario's name."""
        return [f"{self._name(line)}{line}" for line in wrong]

    def _name(self, line: str) -> str:
        found = re.search(r"\b(?:s2|s|o)_(\d+)\.", line)
        return "" if found is None else f"{self.scenarios[int(found[1])].name}: "


def packs(scenarios: Sequence[Scenario], timing: str) -> list[Pack]:
    """As few Replicators as the scenarios allow."""
    mine = [scenario for scenario in scenarios if timing in scenario.timings]
    shared = [[s for s in mine if not s.solo and s.given is given] for given in (False, True)]
    return [Pack.of(group) for group in [*shared, *([s] for s in mine if s.solo)] if group]
