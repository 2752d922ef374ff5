"""A list of the state that grows at its end: a value whose next value shares its items. Pure.

The fold makes a new state for each record and must not change the one before. With tuples, n chunks of a snapshot cost
n²/2 copies. Here all values that grew from each other look at one list, each at its own part of it; only who grows a
value that is no longer the newest copies it first. pyrsistent's vector would grow three times as fast but copies all
that is left when its first items go: 7 ms of 100,000, for each record that says what was applied. Made by the fold,
read by everybody as a sequence.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, get_args, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override

T = TypeVar("T")


class AppendList(Sequence[T]):
    """`append` and `drop` return another one. Threads may read while one of them grows the newest."""

    __slots__ = ("_end", "_items", "_start")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._start, self._end = 0, len(self._items)

    @classmethod
    def _of(cls, items: list[T], start: int, end: int) -> "AppendList[T]":
        made = cls.__new__(cls)
        made._items, made._start, made._end = items, start, end
        return made

    def append(self, item: T) -> "AppendList[T]":
        # Empty ones stand in models as defaults: each that grows has a list of its own.
        alone = self._end == len(self._items) and self._end > 0
        items, start = (self._items, self._start) if alone else (_copy(self), 0)
        end = len(items)
        items.append(item)
        return self._of(items, start, end + 1)

    def drop(self, count: int) -> "AppendList[T]":
        """Without the first `count`. What is dropped is given back once it is the larger part of the list."""
        start = self._start + count
        if 2 * start > self._end:
            return AppendList(_copy(self._of(self._items, start, self._end)))
        return self._of(self._items, start, self._end)

    @override
    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    @override
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._items[self._start + i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._items[(self._end if index < 0 else self._start) + index]

    @override
    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._start, self._end)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppendList | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # compared by content, never a key

    @override
    def __repr__(self) -> str:
        return repr(tuple(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """The schema of a list in documents, whose items are validated like any others."""
        item = handler.generate_schema(get_args(source)[0])
        listed = core_schema.tuple_schema([item], variadic_item_index=0)
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.no_info_before_validator_function(lambda v: tuple(v) if isinstance(v, cls) else v, listed),
            serialization=core_schema.plain_serializer_function_ser_schema(tuple, return_schema=listed),
        )


def _copy(items: AppendList[T]) -> list[T]:
    return list(items)
