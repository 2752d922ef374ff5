"""The report of a cutover that has ended a replication: the target keeps it, so it is found where no driver runs.

Asked by `tailrace status`, and by a driver that ends with an error: the old source may be switched off by then, or
refuse what it allowed before, and that is of no interest once programs write to the copies. Tested with
`driver.driver` and in `tests/unit/cli/test_cutover_done.py`.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from tailrace.changelog.journal import JournalReader
from tailrace.contract.driver import CutoverReport
from tailrace.errors import CutOver, Fenced, TailraceError
from tailrace.places import Places
from tailrace.targets.api import Handover

log = logging.getLogger(__name__)

_T = TypeVar("_T")


def found(places: Places) -> CutoverReport | None:
    """The report of the cutover that has ended this replication; None: there was none, or the target cannot be
    asked."""
    text = _text(places)
    try:
        return None if text is None else CutoverReport.model_validate_json(text)
    except ValidationError:
        return None  # of a later version


def outcome(error: TailraceError, places: Places) -> TailraceError:
    """The success that this error hides, or else the error itself. Rows that are still staged after a cutover, because
    it died right after its last transaction, are removed: no driver follows that could."""
    ended = error
    if not isinstance(error, CutOver | Fenced) and _text(places) is not None:
        log.info("ignored, since a cutover has ended this replication: %s", error)
        ended = CutOver("a cutover has ended the replication into these tables")
    if isinstance(ended, CutOver):
        _ask(places, lambda handover, log_id: handover.tidy(log_id))
    return ended


def _text(places: Places) -> str | None:
    return _ask(places, lambda handover, log_id: handover.done(log_id))


def _ask(places: Places, question: Callable[[Handover, str], _T]) -> _T | None:
    """The answer of the target's handover; None: there is none, or it cannot be asked."""
    if not places.spec.target.is_database:
        return None
    try:
        origin, handover = JournalReader.open(places.storage).state.origin, places.target.handover()
        return None if origin is None or handover is None else question(handover, origin.log_id)
    except (TailraceError, OSError):
        return None
