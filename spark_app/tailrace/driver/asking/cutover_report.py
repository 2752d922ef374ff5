"""The report of a cutover that has ended a replication: the target keeps it, so it is found where no driver runs.

Asked by `tailrace status`, and by a driver that ends with an error: the old source may be switched off by then, or
refuse what it allowed before, and that is of no interest once programs write to the copies. Tested with
`driver.driver` and in `tests/unit/cli/test_cutover_done.py`.
"""

import logging

from pydantic import ValidationError

from tailrace.changelog.journal import JournalReader
from tailrace.contract.driver import CutoverReport
from tailrace.errors import CutOver, Fenced, TailraceError
from tailrace.places import Places

log = logging.getLogger(__name__)


def found(places: Places) -> CutoverReport | None:
    """The report of the cutover that has ended this replication; None: there was none, or the target cannot be
    asked."""
    text = _text(places)
    try:
        return None if text is None else CutoverReport.model_validate_json(text)
    except ValidationError:
        return None  # of a later version


def success_behind(error: TailraceError, places: Places) -> CutOver | None:
    """The success that this error hides. None: there is none, or the target cannot be asked."""
    if isinstance(error, CutOver | Fenced) or _text(places) is None:
        return None
    log.info("ignored, since a cutover has ended this replication: %s", error)
    return CutOver("a cutover has ended the replication into these tables")


def _text(places: Places) -> str | None:
    if not places.spec.target.is_database:
        return None
    try:
        origin, handover = JournalReader.open(places.storage).state.origin, places.target.handover()
        return None if origin is None or handover is None else handover.done(origin.log_id)
    except (TailraceError, OSError):
        return None
