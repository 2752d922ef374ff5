"""What the operator keeps in memory between two looks."""

from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import ObjectKey, Refusal


def test_the_end_of_a_namespace_is_forgotten_with_the_replicator_that_met_it() -> None:
    memory = Memory(lambda: 0.0)
    key = ObjectKey("Replicator", "team", "shop")
    memory.ending.add("first")
    memory.forget(key, "first")
    assert memory.ending == set()


def test_a_refusal_is_told_until_the_object_is_taken_or_no_longer_sent() -> None:
    now = 0.0
    memory, key = Memory(lambda: now), ObjectKey("Replicator", "team", "shop")
    memory.refuse(key, Refusal("Service shop-driver", "h", "quota"))
    found = memory.refusal(key)
    assert found is not None and found.again_at > 0
    now = found.again_at + 30
    assert memory.refusal(key) == found, "it is being sent again: nothing is better yet"
    memory.accept(key, "ConfigMap shop-driver")
    assert memory.refusal(key) is not None
    memory.accept(key, "Service shop-driver")
    assert memory.refusal(key) is None
    memory.refuse(key, Refusal("Service shop-driver", "h", "quota"))
    now += 3600
    assert memory.refusal(key) is None


def test_what_belonged_to_a_replicator_is_forgotten_with_it() -> None:
    memory, key = Memory(lambda: 0.0), ObjectKey("Replicator", "team", "shop")
    memory.applied["Service", "team", "shop-driver"] = ("h", "1")
    memory.applied["Job", "team", "shop-drop"] = ("h", "1")
    memory.applied["CronJob", "team", "shop-check"] = ("h", "1")
    memory.applied["Service", "team", "other-driver"] = ("h", "1")
    memory.hashes["Secret", "team", "shop-driver"] = ("1", "h")
    memory.hashes["Secret", "team", "shop-spark"] = ("1", "h")
    memory.forget(key, "u")
    assert memory.hashes == {}
    assert list(memory.applied) == [("Service", "team", "other-driver")]
