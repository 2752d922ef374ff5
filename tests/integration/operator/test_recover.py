"""`spec.recover` for real: the slot is gone while nobody reads it, and a field has every table read again, once.

That a number is used once, and the next one works, is shown without Spark in `test_plugin.py`."""

from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.real_replicator import Cluster, Shop, cluster


def loses_its_slot(here: Cluster) -> str:
    """While it is suspended; rows are inserted, changed and deleted that no log tells of any more. What Ready says."""
    here.patch(suspend=True)
    here.reason("Suspended")
    here.stopped()
    for slot in here.shop.slots():
        here.shop.server.drop_slot(slot)
    here.shop.write()
    here.patch(suspend=False)
    message = here.reason("PositionLost")
    here.stopped()
    assert here.shop.differences(), "what is lost shows in the target"
    return message


@pytest.mark.timeout(2400)
@pytest.mark.turn(3, 4)  # whole drivers: nearly a minute of CPU
def test_a_lost_position_is_recovered_by_a_field(postgres: PostgresServer, tmp_path: Path) -> None:
    shop = Shop(postgres, tmp_path / "shop")
    with cluster(shop, tmp_path / "here", "recover", "127.0.31.5") as here:
        uid = here.apply()
        here.equal()
        assert "set spec.recover" in loses_its_slot(here)
        here.patch(recover={"mode": "Resnapshot", "nonce": 1})
        here.equal()
        assert here.status()["recoveryUid"] == f"recover-1-{uid}"
        snapshots = shop.snapshots()
        shop.write()
        here.equal()
        assert shop.snapshots() == snapshots, "every table is read once"
        here.nothing_unexpected()
