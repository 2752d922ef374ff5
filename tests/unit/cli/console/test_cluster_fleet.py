"""The drivers' numbers for the fleet: silent drivers of one namespace do not keep those of the others from it."""

import threading
import time
from typing import Any, cast

from tailrace.cli.console.cluster_api import ClusterApi
from tailrace.cli.console.cluster_fleet import (
    AT_ONCE,
    AT_ONCE_IN_NAMESPACE,
    REPLICATORS,
    ClusterFleet,
    DriverMemory,
)
from tailrace.contract.history import LastHour


class Drivers:
    """Those in namespace `bad` do not answer until they may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked: list[str] = []

    def driver(self, namespace: str, name: str, path: str, kind: type[LastHour], **_: object) -> LastHour:
        self.asked.append(f"{namespace}:{name}")
        if namespace == "bad":
            assert self.may.wait(60)
        return LastHour(step_seconds=10)


def item(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "status": {"driver": {"ready": True}}}


def until_asked(drivers: Drivers, count: int) -> None:
    end = time.monotonic() + 60
    while len(drivers.asked) < count:
        assert time.monotonic() < end, drivers.asked
        time.sleep(0.01)


class Listing:
    """An API server with one Replicator and a SnapshotRequest that names none, as under a definition without rules."""

    changes = 0

    def may(self, caller: str, right: object) -> bool:
        return True

    def listed(self, resource: str, namespace: str | None) -> list[dict[str, Any]]:
        if resource == REPLICATORS:
            return [item("a", "shop")]
        return [{"metadata": {"namespace": "a", "name": "r", "creationTimestamp": "x"}, **odd} for odd in ODD]


ODD: tuple[dict[str, Any], ...] = ({"spec": {}}, {}, {"spec": None}, {"spec": {"replicator": "shop"}})


def test_a_request_that_names_no_replicator_does_not_take_the_others_away() -> None:
    fleet = ClusterFleet(cast(ClusterApi, Listing()))
    try:
        (name,) = fleet.replicators("token")
        assert name == "a:shop"
    finally:
        fleet.close()


def test_silent_drivers_of_one_namespace_keep_no_others_numbers_away() -> None:
    drivers = Drivers()
    memory = DriverMemory(cast(ClusterApi, drivers), time.monotonic)
    try:
        many = 2 * AT_ONCE
        for number in range(many):
            memory.lags(item("bad", f"r{number}"))
        for number in range(many):
            memory.lags(item("good", f"r{number}"))
        until_asked(drivers, AT_ONCE_IN_NAMESPACE + many)
        assert sum(name.startswith("bad:") for name in drivers.asked) == AT_ONCE_IN_NAMESPACE
        drivers.may.set()
        until_asked(drivers, 2 * many)
        assert len(set(drivers.asked)) == 2 * many, "each was asked once"
    finally:
        drivers.may.set()
        memory.close()
