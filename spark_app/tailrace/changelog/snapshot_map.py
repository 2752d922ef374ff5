"""The state's snapshots by id, with what is asked for most often at hand: those of a table, and those that are open.

At a first start there is a snapshot for each of, perhaps, thousands of tables, and each batch, each round of the
planner and each record asks for a few of them. Made by the fold, which changes a copy for each record; a dictionary
for everybody else.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override


class CoversTables(Protocol):
    """All that the map has to know of a snapshot. Its tables stay the same for as long as it is known."""

    @property
    def tables(self) -> Mapping[int, Any]: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def takes_over(self) -> bool: ...


S = TypeVar("S", bound=CoversTables)


class SnapshotMap(dict[str, S]):
    """Changed by `[]=` and `del` only, and only by who has copied it."""

    __slots__ = ("_by_table", "_ended", "_open", "_taking_over")

    def __init__(self, snapshots: Mapping[str, S] | Iterable[tuple[str, S]] = ()) -> None:
        super().__init__()
        self._by_table: dict[int, tuple[str, ...]] = {}
        self._open: dict[str, None] = {}
        self._ended: dict[str, None] = {}
        self._taking_over: dict[str, None] = {}
        for snapshot_id, snapshot in dict(snapshots).items():
            self[snapshot_id] = snapshot

    @override
    def copy(self) -> "SnapshotMap[S]":
        made = SnapshotMap.__new__(SnapshotMap)
        dict.update(made, self)
        made._by_table, made._open = self._by_table.copy(), self._open.copy()
        made._ended, made._taking_over = self._ended.copy(), self._taking_over.copy()
        return made

    @override
    def __setitem__(self, snapshot_id: str, snapshot: S) -> None:
        if snapshot_id not in self:
            for table_id in snapshot.tables:
                self._by_table[table_id] = (*self._by_table.get(table_id, ()), snapshot_id)
            if snapshot.takes_over:
                self._taking_over[snapshot_id] = None
        super().__setitem__(snapshot_id, snapshot)
        now, before = (self._open, self._ended) if snapshot.is_open else (self._ended, self._open)
        before.pop(snapshot_id, None)
        now[snapshot_id] = None

    @override
    def __delitem__(self, snapshot_id: str) -> None:
        for table_id in self[snapshot_id].tables:
            left = tuple(other for other in self._by_table[table_id] if other != snapshot_id)
            if left:
                self._by_table[table_id] = left
            else:
                del self._by_table[table_id]
        super().__delitem__(snapshot_id)
        for ids in (self._open, self._ended, self._taking_over):
            ids.pop(snapshot_id, None)

    @override
    def __reduce__(self) -> tuple[type["SnapshotMap[S]"], tuple[dict[str, S]]]:
        return SnapshotMap, (dict(self),)

    def of(self, table_id: int) -> Iterator[S]:
        """Those that cover the table, in order."""
        return (self[snapshot_id] for snapshot_id in self._by_table.get(table_id, ()))

    def open(self) -> Iterator[S]:
        """Those that have not ended, in order."""
        return map(self.__getitem__, self._open)

    def taking_over(self) -> Iterator[S]:
        """Verifications that make up for what other programs did, in order."""
        return map(self.__getitem__, self._taking_over)

    @property
    def ended(self) -> list[str]:
        """The ids of those that have ended, in order."""
        return list(self._ended)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """The schema of a dictionary in documents."""
        known = handler.generate_schema(dict[str, get_args(source)[0]])  # type: ignore[misc]  # known at run time only
        return core_schema.no_info_after_validator_function(cls, known)
