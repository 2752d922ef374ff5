"""`tailrace retained`: how much log the source keeps for a Replicator, whether its driver runs or not.

The driver says it as long as it runs. If one is suspended or stopped, the source's disk would fill unnoticed: the
operator has a CronJob ask (docs/decisions/0066).
"""

import logging
from pathlib import Path

from tailrace.capture.admission import check_product
from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.places import Places
from tailrace.storage.store import Storage

log = logging.getLogger(__name__)


def retained_bytes(replicator: Replicator, secrets: Path | None) -> int | None:
    """None: the source keeps none. Reads the change log, which names what Tailrace has in the source. A Replicator that
    has never got so far has nothing there, nor has one whose manifest names another Replicator's change log."""
    places = Places(replicator.spec, "tailrace retained", secrets)
    storage = places.storage
    origin, owner = _found(storage)
    if origin is None or not ownership.may_go_to(owner, replicator):
        log.warning("there is no change log of this Replicator at %s", storage.root)
        return None
    check_product(replicator, origin)
    with places.source.subscription(replicator, storage.root) as subscription:
        return subscription.retained_bytes(origin)


def _found(storage: Storage) -> tuple[Origin | None, str]:
    """With its owner. Of a first start that was interrupted, too."""
    state = JournalReader.open(storage).state
    if state.origin is not None:
        return state.origin, state.owner or state.origin.owner
    noted = first_start.read(storage)
    return noted, "" if noted is None else noted.owner
