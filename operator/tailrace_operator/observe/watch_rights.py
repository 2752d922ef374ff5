"""Rights to list what is watched, by namespace: one without them is named, and waited for alone.

Rights come and go while the operator runs: a namespace that does not exist yet, or is being deleted, has none either.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace_operator import metrics

log = logging.getLogger(__name__)
EVERYWHERE = "*"
"""A word in place of a name, where all namespaces are watched as one."""


@dataclass(frozen=True)
class Turned:
    """A namespace that lost its rights, or got them."""

    namespace: str | None
    refusal: str
    """The API server's words. Empty: there is none any longer."""

    @property
    def text(self) -> str:
        where = "all namespaces" if self.namespace is None else f"namespace {self.namespace}"
        if not self.refusal:
            return f"{where}: watched again"
        return f"{where}: not watched, because {self.refusal.rstrip('.')}"


class WatchRights:
    def __init__(self, namespaces: Sequence[str | None]) -> None:
        self.namespaces = namespaces
        """Those that are watched."""
        self._refused: dict[str | None, dict[str, str]] = defaultdict(dict)
        """The API server's words by what it does not show: a kind, and a selection of it."""
        self._on_return: list[Callable[[str | None], None]] = []
        self.turned: asyncio.Queue[Turned] = asyncio.Queue()

    def on_return(self, call: Callable[[str | None], None]) -> None:
        """Called with a namespace as soon as nothing there is refused any longer."""
        self._on_return.append(call)

    def refused(self, namespace: str | None, what: str, message: str) -> None:
        """Makes the namespace blind: what is known of it may be old."""
        kinds = self._refused[namespace]
        first = not kinds
        kinds[what] = message
        if first:
            metrics.REFUSED.labels(namespace or EVERYWHERE).set(1)
            self._turn(Turned(namespace, message))

    def granted(self, namespace: str | None, what: str) -> None:
        """It is watched, and was listed before."""
        kinds = self._refused.get(namespace)
        if kinds is None or kinds.pop(what, None) is None or kinds:
            return
        del self._refused[namespace]
        metrics.REFUSED.remove(namespace or EVERYWHERE)
        self._turn(Turned(namespace, ""))
        for call in self._on_return:
            call(namespace)

    def bars(self, namespace: str | None, what: str) -> bool:
        """True if it is known to be refused there."""
        return what in self._refused.get(namespace, {})

    def blind(self, namespace: str) -> bool:
        """True if something is refused there: nothing may be decided from what is known of it."""
        return bool(self._refused) and (None in self._refused or namespace in self._refused)

    @property
    def everywhere(self) -> bool:
        """True if there is no watched namespace without a refusal."""
        return len(self._refused) == len(self.namespaces)

    def problem(self) -> str:
        """Empty: everything may be listed."""
        return "; ".join(Turned(namespace, next(iter(kinds.values()))).text for namespace, kinds in self._sorted())

    def _sorted(self) -> list[tuple[str | None, dict[str, str]]]:
        return sorted(self._refused.items(), key=lambda item: item[0] or "")

    def _turn(self, turned: Turned) -> None:
        log.log(logging.WARNING if turned.refusal else logging.INFO, turned.text)
        self.turned.put_nowait(turned)
