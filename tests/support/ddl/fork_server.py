"""Captures as forks (`support.forks`), which look at the catalog as tests want it. Used by `support.ddl.in_process` and
`support.capture`."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from support.forks import Forks

LOOKS = "looks"
"""Of a run folder: the number of looks at the catalog that were begun."""
GATE = "no-looks"
"""While the file is there, capture looks at the catalog only when a chunk needs it: what is written then stands between
two looks."""
PAUSES = "pauses"
"""Of a run folder: the longest random pause, in seconds, between any two steps of a look at the catalog."""
POLL_SECONDS = 0.15
LOOKS_OFTEN = {"poll": POLL_SECONDS, "rarest_poll": 4 * POLL_SECONDS}
"""Of `capture.loop.Timing`: nothing waits seconds for a look at the catalog, and hundreds of tables are not looked at
all the time."""
QUICK = {**LOOKS_OFTEN, "record": 0.02, "step": 0.03, "waiting_heartbeat": 0.03}


class ForkServer(Forks):
    """Of captures."""

    def __init__(self) -> None:
        super().__init__("support.ddl.fork_server", "tailrace.capture.process")

    def start(self, folder: Path, arguments: list[str], timing: Mapping[str, float] = QUICK, seams: str = "") -> int:
        """The pid of a new capture; it writes to `capture.log` of the folder."""
        return self.fork("capture", folder / "capture.log", str(folder), arguments, dict(timing), seams)


def looks(folder: Path) -> int:
    """Looks at the catalog that the capture of this folder has ended."""
    try:
        text = (folder / LOOKS).read_text().split()
    except FileNotFoundError:
        return 0
    return int(text[1]) if len(text) == 2 else 0


def capture(place: str, arguments: list[str], timing: dict[str, Any], seams: str) -> int:
    """What the fork runs."""
    from tailrace import seams as armed
    from tailrace.capture import loop, process
    from tailrace.sources.postgresql.log import routes
    from tailrace.sources.postgresql.log.catalog_poll import CatalogPoll

    folder = Path(place)
    armed._plan.update(armed._parse(seams))
    routes.__dict__["SHORTEST_PAUSE"] = timing.get("poll", routes.SHORTEST_PAUSE)
    slower = loop.Timing

    def quicker(**given: Any) -> loop.Timing:
        return replace(slower(**given), **timing)

    process.__dict__["Timing"] = quicker
    looks = _Looks(folder, CatalogPoll.poll)
    CatalogPoll.poll = looks.poll()  # type: ignore[method-assign]  # looks are made by hand here
    if (folder / PAUSES).exists():
        _pause_between_steps(float((folder / PAUSES).read_text()))
    return process.main(arguments)


def _pause_between_steps(longest: float) -> None:
    """A look is several statements, each a transaction of its own: others may act between any two of them."""
    from tailrace.sources.postgresql import fingerprint, objects
    from tailrace.sources.postgresql.log import catalog_poll

    rnd = Random(os.getpid())

    def slower(function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(rnd.choice((0, rnd.random() * longest)))
            return function(*arguments, **options)

        return slow

    for module, names in (
        (objects, ("emit", "edge", "ensure_publication", "unpublishable")),
        (fingerprint, ("look_at_publication", "_parts")),
        (catalog_poll, ("look", "empty")),
    ):
        for name in names:
            module.__dict__[name] = slower(module.__dict__[name])


class _Looks:
    """Counts looks at the catalog, and holds back those that only time asks for."""

    def __init__(self, folder: Path, look: Callable[..., int]) -> None:
        self._folder = folder
        self._look = look
        self._first = True
        self._count = 0

    def poll(self) -> Callable[..., int]:
        def poll(catalog: Any, *arguments: Any, **options: Any) -> int:
            asked = bool(arguments or options)
            if not self._first and not asked and (self._folder / GATE).exists():
                return 0
            self._first = False
            token = self._look(catalog, *arguments, **options)
            self._count += 1
            (self._folder / LOOKS).write_text(f"{os.getpid()} {self._count}")
            return token

        return poll
