"""`tailrace retained`: how much log the source keeps for a Replicator, whether its driver runs or not.

The driver says it as long as it runs. Of one that is suspended or halted nobody would know, and the source's disk
fills: the operator has a CronJob ask (docs/decisions/0034).
"""

from pathlib import Path

from tailrace import sources
from tailrace.capture.admission import check_product
from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Origin
from tailrace.contract.resources import Replicator
from tailrace.errors import SourceRefused
from tailrace.storage.store import Storage


def retained_bytes(replicator: Replicator, secrets: Path | None) -> int | None:
    """None: the source keeps none. Reads the change log, which names what Tailrace has in the source."""
    storage = Storage.open(replicator.spec.storage)
    origin = _origin(storage)
    if origin is None:
        raise SourceRefused(
            f"there is no change log at {storage.root} yet, so the source keeps no log for it",
            "Start the Replicator first.",
        )
    check_product(replicator, origin)
    source = sources.open(replicator.spec.source, "tailrace retained", secrets)
    with source.subscription(replicator, storage.root) as subscription:
        return subscription.retained_bytes(origin)


def _origin(storage: Storage) -> Origin | None:
    """Of a first start that was interrupted, too."""
    known = JournalReader.open(storage).state.origin
    return known if known is not None else first_start.read(storage)
