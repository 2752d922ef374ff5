"""Names of the JVM are looked up once."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError

from tailrace.targets.lake.known_names import known_names


class Gateway:
    """A JVM that has `a.b.Thing` with a static method and a static field."""

    converters = None
    gateway_property = SimpleNamespace(pool=None, auto_field=False)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_command(self, command: str) -> str:
        kind, rest = command.split("\n", 1)
        self.asked.append(rest.replace("\n", " ").rsplit(" e", 1)[0])
        if kind == "i":
            return "yi7"
        if kind == "c":
            return "yi5"
        return {
            "u a rj": "yp", "u a.b rj": "yp", "u a.b.Thing rj": "yca.b.Thing", "m a.b.Thing make": "ym",
            "m a.b.Thing LIMIT": "yi42",
        }.get(self.asked[-1], "x")  # fmt: skip


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def names(gateway: Gateway) -> Any:
    return known_names(JVMView(gateway, "default", id="rj"))


def test_a_name_is_looked_up_once(gateway: Gateway, names: Any) -> None:
    for _ in range(3):
        assert names.a.b.Thing.make() == 5
    assert [asked for asked in gateway.asked if asked.startswith(("u ", "m "))] == [
        "u a rj", "u a.b rj", "u a.b.Thing rj", "m a.b.Thing make",
    ]  # fmt: skip


def test_all_tables_of_a_jvm_share_its_names(gateway: Gateway) -> None:
    view = JVMView(gateway, "default", id="rj")
    assert known_names(view) is known_names(view)
    assert known_names(JVMView(gateway, "default", id="rj")) is not known_names(view)


def test_a_static_field_is_read_each_time(gateway: Gateway, names: Any) -> None:
    assert [names.a.b.Thing.LIMIT, names.a.b.Thing.LIMIT] == [42, 42]
    assert gateway.asked.count("m a.b.Thing LIMIT") == 2


def test_a_name_that_is_not_there_is_asked_for_again(gateway: Gateway, names: Any) -> None:
    for _ in range(2):
        with pytest.raises(Py4JError):
            assert names.a.c
    assert gateway.asked.count("u a.c rj") == 2


def test_a_class_makes_objects(gateway: Gateway, names: Any) -> None:
    assert [names.a.b.Thing(), names.a.b.Thing()] == [7, 7]
    assert sum(asked.startswith("a.b.Thing") for asked in gateway.asked) == 2
