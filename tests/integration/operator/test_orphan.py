"""`deletionPolicy: Orphan` for real: a Replicator is deleted and applied again, here or in another cluster, and its
stream continues where it ended. Of two that want one change log, one writes."""

import json
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.real_replicator import REPL, Cluster, Shop, cluster
from support.waiting import until
from tailrace.contract.ownership import made_name


def orphaned(here: Cluster) -> None:
    """Deleted; what it has in the source is there, is named, and rows change meanwhile."""
    shop = here.shop
    slots, before = shop.slots(), shop.snapshots()
    here.gone()
    event = here.event("Released")
    assert slots and all(slot in event for slot in slots)
    assert (shop.slots(), shop.publications()) == (slots, slots)
    assert shop.log().released and shop.snapshots() == before
    shop.write()


def continues(here: Cluster, uid: str, before: list[str]) -> None:
    """The same slot, the same change log, no other snapshot."""
    shop = here.shop
    here.equal()
    owner = f"{here.place.namespace}/shop@{uid}"
    until(lambda: shop.log().owner == owner, lambda: f"{owner} owns the log, not {shop.log().owner}")
    shop.write()
    here.equal()
    assert shop.snapshots() == before, "nothing is read again"


@pytest.mark.timeout(2400)
@pytest.mark.turn(0, 4)  # whole drivers in two clusters: minutes of CPU
def test_a_replicator_continues_here_and_in_another_cluster_and_the_loser_of_a_forced_move_writes_no_more(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Two API servers that know nothing of each other, with an operator each; the storage is the same."""
    shop = Shop(postgres, tmp_path / "shop")
    with cluster(shop, tmp_path / "old", "old", "127.0.31.3") as old:
        first = old.apply(deletionPolicy="Orphan")
        old.equal()
        before = shop.snapshots()
        slots = [made_name("shop", first)]
        assert shop.slots() == slots
        orphaned(old)
        second = old.apply(deletionPolicy="Orphan")
        assert second != first
        continues(old, second, before)
        # Next it is deleted while it is suspended: a Job releases the log.
        old.patch(suspend=True)
        old.reason("Suspended")
        old.stopped()
        orphaned(old)
        with cluster(shop, tmp_path / "new", "new", "127.0.31.4") as new:
            moved = new.apply(deletionPolicy="Orphan")
            continues(new, moved, before)
            comes_back_by_force(old, new, before)
            for each in (old, new):
                each.nothing_unexpected()
        assert shop.slots() == slots
        old.gone()
        assert slots[0] in old.event("CleanedUp")
        assert (shop.slots(), shop.publications()) == ([], []), "it drops what another uid created for the same log"
        assert shop.differences() == [], "the tables stay"
        old.nothing_unexpected()


def comes_back_by_force(old: Cluster, new: Cluster, before: list[str]) -> None:
    """While the new cluster's driver runs: not without a word."""
    shop = old.shop
    owner = shop.log().owner
    returned = old.apply()
    message = old.reason("ConfigurationRefused")
    assert f"belongs to Replicator {owner!r}" in message and "storage.adopt" in message
    shop.write()
    new.equal()
    old.patch(storage={"adopt": owner})
    shop.write()
    continues(old, returned, before)
    new.reason("Fenced")
    new.stopped()
    the_loser_stays_stopped(new)
    shop.write()
    old.equal()
    # Deleted, the loser takes nothing away.
    new.gone()
    assert "belongs to" in new.event("Kept")
    shop.write()
    old.equal()
    assert shop.slots() and not shop.log().released


def the_loser_stays_stopped(loser: Cluster) -> None:
    """Whatever happens to its objects: another Secret, another spec, Flux' request, another operator."""
    epoch = loser.shop.log().epoch
    loser.place.secret("shop-db", "rotated")
    loser.patch(apply={"freshness": "2s"})
    annotation = json.dumps({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}})
    loser.place.kubectl("patch", "repl", "shop", "--type=merge", "-p", annotation)
    until(lambda: loser.status().get("lastHandledReconcileAt") == "now", "Flux' request is handled")
    loser.process.kill()
    loser.process.start()
    loser.patch(apply={"freshness": "1s"})
    loser.stopped()
    assert (loser.place.condition(REPL, "Stalled") or {}).get("reason") == "Fenced"
    assert loser.shop.log().epoch == epoch, "nobody has claimed the log since"
