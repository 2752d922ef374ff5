"""The cuts of a driver: made on request and by the clock, noted in the journal as tables come to them, and dropped.

    PUT /cuts/{name} ──> CutMade ──> each table's worker keeps its version ──> Progress ──> CutHeld
                                                                                  └──> the manifest beside the tables

What a table has to do is `apply.unit_worker`'s. Called by the status server's threads, and in a loop of its own.
Dying anywhere is safe: what no record says yet is found again in the tables.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from threading import Lock

from tailrace.apply.progress import HeldCut, Progress
from tailrace.capture.client import CaptureClient
from tailrace.changelog.logged import LoggedCut, TableLog
from tailrace.changelog.records.cuts import CutDropped, CutHeld, CutMade
from tailrace.changelog.records.terms import Position
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.contract.driver import CutReport
from tailrace.contract.settings import CutsSpec
from tailrace.contract.units import seconds
from tailrace.driver.asking.server import Conflict, Unknown
from tailrace.driver.telling.cut_report import manifest, report
from tailrace.errors import InvalidManifest, Retry
from tailrace.targets.api import Target

log = logging.getLogger(__name__)

BY_TIME = "%Y%m%d_%H%M%S"
"""Names of cuts that nobody has named, in UTC."""
NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
"""A part of tags, of files' names, and of identifiers in SQL."""


class CutKeeper:
    def __init__(
        self,
        journal: SharedJournal,
        client: CaptureClient,
        progress: Progress,
        target: Target,
        *,
        text: Callable[[Position], str],
        spec: Callable[[], CutsSpec | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`text`: a position as people read it. `spec`: as it is now."""
        self._journal, self._client, self._progress, self._target = journal, client, progress, target
        self._text, self._spec, self._clock = text, spec, clock
        self._lock = Lock()
        self._shown: dict[str, LoggedCut] | None = None
        """The cuts as the manifests in the target have them; None: not known yet."""

    def make(self, name: str) -> CutReport:
        if not NAME.fullmatch(name):
            raise InvalidManifest(
                f"a cut cannot have the name {name[:100]!r}",
                "Use up to 63 lower-case letters, digits and _, beginning with a letter or digit.",
            )
        with self._lock:
            state = self._journal.refresh()
            if not any(not table.removed for table in state.tables.values()):
                raise Retry("no table is captured yet", "Ask again in a few seconds.")
            if name in state.cuts:
                fix = f"Choose another name, or drop it: tailrace cut -f <manifest> --drop {name}"
                raise Conflict(f"there is a cut {name!r}", fix)
            self._client.append([CutMade(name=name)])
            return self._report(self._journal.refresh().cuts[name])

    def drop(self, name: str) -> None:
        with self._lock:
            known = self._journal.refresh().cuts
            if name not in known:
                few = ", ".join(list(known)[-5:])
                fix = f"The newest are {few}; " if few else "There is none; "
                raise Unknown(f"there is no cut {name!r}", f"{fix}`tailrace cuts` shows all.")
            self._client.append([CutDropped(name=name)])
            self._journal.refresh()

    def reports(self) -> tuple[CutReport, ...]:
        return tuple(map(self._report, self._journal.refresh().cuts.values()))

    def _report(self, cut: LoggedCut) -> CutReport:
        return report(cut, self._journal.state, self._progress.all(), self._text)

    def step(self) -> None:
        with self._lock:
            self._note()
            self._schedule()
            self._show()

    def _note(self) -> None:
        """Have the journal hold what tables have come to since."""
        known, held = self._journal.state.cuts, self._progress.held()
        recorded = [one for one, at in held.items() if one[0] not in known or not _is_news(known[one[0]], one[1], at)]
        self._progress.recorded(recorded)
        news: dict[str, dict[int, HeldCut]] = {}
        for name, table_id in held.keys() - set(recorded):
            news.setdefault(name, {})[table_id] = held[name, table_id]
        if news:
            self._client.append([_held(name, tables) for name, tables in news.items()])
            self._journal.refresh()

    def _schedule(self) -> None:
        """Make the cut that `spec.cuts` calls for now, and drop those that are too many."""
        spec, state, now = self._spec(), self._journal.state, self._clock()
        if spec is None:
            return
        own = [cut for cut in state.cuts.values() if cut.scheduled]
        name = time.strftime(BY_TIME, time.gmtime(now))
        events: list[CutMade | CutDropped] = []
        if (
            _is_due(own, now, seconds(spec.every))
            and name not in state.cuts
            and any(map(_is_read, state.tables.values()))
        ):
            events.append(CutMade(name=name, scheduled=True))
        too_many = len(own) + len(events) - spec.keep
        events += [CutDropped(name=cut.name) for cut in own[: max(too_many, 0)]]
        if events:
            self._client.append(events)
            self._journal.refresh()

    def _show(self) -> None:
        """Have the manifests say what the journal does."""
        state = self._journal.state
        assert state.origin is not None
        known, shown, log_id = state.cuts, self._shown, state.origin.log_id
        if shown is None:
            # Those that are there may be older than their record: the process that was to write them was killed.
            shown = self._shown = {}
            gone = set(self._target.shown_cuts(log_id)) - known.keys()
        else:
            gone = shown.keys() - known.keys()
        for name in gone:
            self._target.show_cut(log_id, name, None)
            shown.pop(name, None)
        for name, cut in known.items():
            if shown.get(name) is not cut:
                self._target.show_cut(log_id, name, manifest(cut, state, self._text))
                shown[name] = cut


def _is_news(cut: LoggedCut, table_id: int, held: HeldCut) -> bool:
    """The table comes to the cut, or what it held of it is gone."""
    return table_id in cut.awaited or (held.why is not None and table_id in cut.versions)


def _is_due(own: Sequence[LoggedCut], now: float, every: float) -> bool:
    """After a clock that was set back, too."""
    return not own or not 0 <= now - own[-1].made_at / 1e6 < every


def _is_read(table: TableLog) -> bool:
    """A cut before any table was read would hold none."""
    return not table.removed and table.read_record > table.added_record


def _held(name: str, tables: dict[int, HeldCut]) -> CutHeld:
    versions = {i: held.version for i, held in tables.items() if held.why is None}
    return CutHeld(name=name, versions=versions, without={i: held.why for i, held in tables.items() if held.why})
