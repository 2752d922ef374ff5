"""Looks at the edges of tables: one for those that share an edge, and not many when many edges wait."""

from tailrace.snapshot.edge import SECONDS, EdgeLook, Edges


def test_an_edge_waits_while_a_look_is_under_way_and_after_one_that_found_somebody() -> None:
    edges = Edges()
    assert not edges.is_waiting("a", 0.0)
    edges.looks("a", 0.0)
    assert edges.is_waiting("a", SECONDS / 2) and not edges.is_waiting("b", SECONDS / 2)
    edges.saw(EdgeLook("a", "transaction 5"), {"a"})
    assert edges.is_waiting("a", SECONDS / 2) and not edges.is_waiting("a", SECONDS)
    assert edges.waits_for("a") == "transaction 5" and edges.waits_for("b") is None
    assert not edges.passed("a")


def test_the_looks_of_many_edges_are_no_more_than_those_of_one() -> None:
    edges, names = Edges(), [str(n) for n in range(50)]
    looks = 0
    for tick in range(3000):
        now = tick / 10
        for name in names:
            if not edges.is_waiting(name, now):
                edges.looks(name, now)
                edges.saw(EdgeLook(name, "somebody"), set(names))
                looks += 1
    assert looks <= 300 / SECONDS + 2 * len(names)


def test_an_edge_that_has_passed_lets_the_others_look_at_once() -> None:
    edges = Edges()
    for name in ("a", "b"):
        edges.looks(name, 0.0)
        edges.saw(EdgeLook(name, "somebody"), {"a", "b"})
    edges.saw(EdgeLook("a", None), {"a", "b"})
    assert edges.passed("a") and edges.waits_for("a") is None
    assert not edges.is_waiting("b", 0.0) and edges.waits_for("b") == "somebody"


def test_edges_that_no_table_has_any_more_are_forgotten() -> None:
    edges = Edges()
    for name in ("a", "b"):
        edges.saw(EdgeLook(name, None), {"a", "b"})
    edges.saw(EdgeLook("c", None), {"b", "c"})
    assert not edges.passed("a") and edges.passed("b") and edges.passed("c")
    edges.saw(EdgeLook("d", "somebody"), {"b", "d"})
    edges.saw(EdgeLook("e", "somebody"), {"b", "e"})
    assert edges.waits_for("d") is None and edges.waits_for("e") == "somebody"
