"""Which namespaces may be decided in, by what the API server refuses."""

import asyncio

from tailrace_operator import metrics
from tailrace_operator.observe.watch_rights import EVERYWHERE, WatchRights


def test_a_namespace_is_blind_until_each_of_its_watches_is_back() -> None:
    async def history() -> None:
        access = WatchRights(["a", "b"])
        back: list[str | None] = []
        access.on_return(back.append)
        for what in ("ConfigMap", "ConfigMap app=tailrace"):
            access.refused("a", what, "no")
        assert access.blind("a") and not access.blind("b")
        access.granted("a", "ConfigMap")
        assert access.blind("a") and access.bars("a", "ConfigMap app=tailrace") and not back
        access.granted("a", "ConfigMap app=tailrace")
        assert not access.blind("a") and back == ["a"] and access.turned.qsize() == 2

    asyncio.run(history())


def test_a_watch_of_all_namespaces_that_is_refused_makes_all_blind() -> None:
    async def history() -> None:
        access = WatchRights([None])
        access.refused(None, "Pod", "no")
        assert access.blind("any") and access.everywhere
        assert metrics.REGISTRY.get_sample_value("tailrace_operator_refused_namespaces", {"namespace": EVERYWHERE}) == 1
        access.granted(None, "Pod")
        assert not access.blind("any")

    asyncio.run(history())
