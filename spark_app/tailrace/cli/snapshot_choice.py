"""The snapshot that `pause`, `resume` or `stop` concerns: of the command line and of the console."""

from collections.abc import Sequence

from tailrace.contract.status import SnapshotStatus
from tailrace.errors import TailraceError

UNDER_WAY = ("Pending", "Running", "Paused")


class WrongSnapshot(TailraceError):
    """The command names no snapshot that it can pause, resume or stop."""

    exit_code = 2


def choose(known: Sequence[SnapshotStatus], requested: str | None, verb: str) -> SnapshotStatus:
    """`requested`: id or name; None: the only one under way. One that has ended can be stopped, to no effect."""
    under_way = [s for s in known if s.state in UNDER_WAY]
    chosen = under_way if requested is None else [s for s in known if requested in (s.id, s.name)]
    chosen = [s for s in chosen if s in under_way] or chosen[-1:]
    if len(chosen) != 1:
        raise WrongSnapshot(*_not_one(requested, [s.id for s in chosen]))
    if chosen[0] not in under_way and verb != "stop":
        raise WrongSnapshot(f"snapshot {chosen[0].id} has ended: {chosen[0].state}", "Request another one.")
    return chosen[0]


def _not_one(requested: str | None, found: Sequence[str]) -> tuple[str, str]:
    """Message and fix for a verb that needs one snapshot."""
    if found:
        return f"several snapshots are under way: {', '.join(found)}", "Name one by its id."
    none = "no snapshot is under way" if requested is None else f"there is no snapshot {requested!r}"
    return none, "Request one with `tailrace snapshot`; `tailrace status --json` shows the ids of all."
