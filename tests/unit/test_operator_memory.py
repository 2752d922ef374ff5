"""What the operator keeps in memory between two looks."""

from tailrace_operator.observe.memory import Memory
from tailrace_operator.observe.model import Key


def test_the_end_of_a_namespace_is_forgotten_with_the_replicator_that_met_it() -> None:
    memory = Memory(lambda: 0.0)
    key = Key("Replicator", "team", "shop")
    memory.ending.add("first")
    memory.forget(key, "first")
    assert memory.ending == set()
