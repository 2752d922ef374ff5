"""The JVM's packages, classes and static methods by name, each looked up once.

py4j asks the JVM again at every use of a name, and that searches every jar for `org`, `org.apache` and so on: half of
what a small commit cost (docs/decisions/0055).
"""

from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage


class KnownName:
    """A package or a class whose members are kept once they are known. Values of static fields are not."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._found, name)
        if isinstance(member, JavaPackage | JavaClass):
            member = KnownName(member)
        if isinstance(member, KnownName | JavaMember):
            setattr(self, name, member)
        return member

    def __call__(self, *arguments: Any) -> Any:
        """A new object of the class."""
        return self._found(*arguments)


@lru_cache(maxsize=1)
def known_names(jvm: Any) -> Any:
    """The root: `jvm` is py4j's view. One is kept, as a process has one JVM at a time."""
    return KnownName(jvm)
