"""Random schedules, the search for a failing one, and shrinking it to something a person can read."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from model.capture import Capture
from model.source import State
from model.world import Action, Fault, Plan, World

from tailrace.batch.rule import ApplyRule

COLUMNS = ("x", "x", "x", "xt", "xu", "xtu")
KINDS = ("put",) * 8 + ("delete",) * 2 + ("move",) * 4 + ("truncate",)
WEIGHTS = {
    "write": 28, "commit": 11, "show": 7, "abort": 1, "chunk": 8, "snapshot": 2, "read": 8, "receive": 10,
    "record": 10, "crash": 1, "apply": 10, "reread": 3, "trim": 2, "slot": 2,
}  # fmt: skip
MakeRule = Callable[[], ApplyRule[int]]


def make_rule() -> ApplyRule[int]:
    return ApplyRule(3)


def plan(rnd: random.Random) -> Plan:
    keys = rnd.randint(3, 7)
    cuts = sorted(rnd.sample(range(1, keys), rnd.randint(0, 2)))
    ranges = tuple(range(low, high) for low, high in pairwise([0, *cuts, keys]))
    rows: State = {key: (f"x{key}", f"t{key}", f"u{key}") for key in range(keys) if rnd.random() < 0.6}
    mode = rnd.choice(("initial", "filled", "stale"))
    junk: State = {key: ("jx", "jt", "ju") for key in range(keys + 2) if mode == "stale" and rnd.random() < 0.3}
    lost = frozenset(key for key in rows if mode == "stale" and rnd.random() < 0.3)
    late = mode == "initial" and rnd.random() < 0.3
    return Plan(keys, rows, ranges, mode, junk, lost, late, rnd.random() < 0.3)


def action(rnd: random.Random, name: str, keys: int) -> Action:
    number = rnd.randrange(8)
    if name == "write":
        return name, rnd.randrange(3), rnd.choice(KINDS), rnd.randrange(keys), rnd.randrange(keys), rnd.choice(COLUMNS)
    if name == "chunk":
        return name, number, rnd.randrange(3)
    if name == "snapshot":
        low = rnd.randrange(keys)
        return name, low, rnd.randint(low + 1, keys), rnd.random() < 0.3
    if name == "record":
        return name, rnd.choice((0, 1, 2, 3, 17, -1, -1))
    if name == "apply":
        return name, rnd.randint(1, 3), rnd.choice(("",) * 8 + ("before", "after"))
    if name == "receive":
        return name, rnd.randint(1, 3)
    return (name,) if name in ("crash", "trim", "slot") else (name, number)


def schedule(rnd: random.Random) -> tuple[Plan, list[Action]]:
    start = plan(rnd)
    names = rnd.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rnd.randint(8, 110))
    return start, [action(rnd, name, start.keys) for name in names]


def failure(start: Plan, actions: list[Action], rule: MakeRule, capture: type[Capture]) -> str | None:
    try:
        World(start, rule(), capture).run(actions)
    except Fault as fault:
        return str(fault)
    return None


def search(
    seed: int, count: int, rule: MakeRule = make_rule, capture: type[Capture] = Capture
) -> tuple[Plan, list[Action]] | None:
    """Run `count` schedules; the first that fails, or None."""
    rnd = random.Random(seed)
    for _ in range(count):
        start, actions = schedule(rnd)
        if failure(start, actions, rule, capture):
            return start, actions
    return None


def explain(found: tuple[Plan, list[Action]], rule: MakeRule = make_rule, capture: type[Capture] = Capture) -> str:
    """Everything needed to see why a schedule fails."""
    start, actions = shrink(*found, rule, capture)
    return "\n".join([str(failure(start, actions, rule, capture)), repr(start), *map(repr, actions)])


def shrink(start: Plan, actions: list[Action], rule: MakeRule, capture: type[Capture]) -> tuple[Plan, list[Action]]:
    """Take away actions, in ever smaller runs, as long as it still fails; then rows."""
    size = max(1, len(actions) // 2)
    while size:
        at = 0
        while at < len(actions):
            fewer = actions[:at] + actions[at + size :]
            if failure(start, fewer, rule, capture):
                actions = fewer
            else:
                at += size
        size //= 2
    for key in list(start.rows):
        smaller = replace(start, rows={k: row for k, row in start.rows.items() if k != key})
        start = smaller if failure(smaller, actions, rule, capture) else start
    return start, actions
