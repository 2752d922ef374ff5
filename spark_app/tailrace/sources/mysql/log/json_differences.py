"""The differences that an update with `binlog_row_value_options = PARTIAL_JSON` made in a document.

Used by `rows`, where the row before the update has the whole document.
"""

import json
import re
from collections.abc import Iterator

from tailrace.sources.mysql.log.events import number, piece, whole
from tailrace.sources.mysql.log.json_binary import Node, members, written

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG = re.compile(r'\[(last-?)?(\d*)\]|\.(?:("(?:[^"\\]|\\.)*")|([^.\["]+))', re.DOTALL)
"""A step of a path: into an array, from its begin or its end, or to a member, whose name is quoted where it is no plain
word."""


def text(before: bytes, differences: bytes) -> str:
    """The text of the document after the differences."""
    with whole("JSON"):
        document = members(before)
        for kind, path, value in _differences(differences):
            document = _changed(document, kind, path, value)
        return written(document)


def _differences(data: bytes) -> Iterator[tuple[int, list[int | str], Node]]:
    at = 0
    while at < len(data):
        kind = data[at]
        length, at = number(data, at + 1)
        path, at = piece(data, at, length)
        value: Node = ""
        if kind in (_REPLACE, _INSERT):
            length, at = number(data, at)
            raw, at = piece(data, at, length)
            value = members(raw)
        elif kind != _REMOVE:
            raise ValueError("unknown difference")
        yield kind, _legs(path.decode()), value


def _legs(path: str) -> list[int | str]:
    """Places that are counted from an array's end are negative."""
    legs, at = list[int | str](), 1 if path.startswith("$") else 0
    while at < len(path):
        found = _LEG.match(path, at)
        if found is None:
            raise ValueError("not a path")
        from_end, index, quoted, name = found.groups()
        if index is not None:
            legs.append(int(index) if from_end is None else -1 - int(index or 0))
        else:
            legs.append(name if quoted is None else json.loads(quoted))
        at = found.end()
    return legs


def _changed(document: Node, kind: int, path: list[int | str], value: Node) -> Node:
    if not path:
        if kind != _REPLACE:
            raise ValueError("not a place in a document")
        return value
    *way, last = path
    inside = document
    for leg in way:
        inside = _inside(inside, leg)
    if isinstance(inside, dict) and isinstance(last, str):
        if (last in inside) != (kind != _INSERT):
            raise ValueError("another document")
        if kind == _REMOVE:
            del inside[last]
        else:
            inside[last] = value
    elif isinstance(inside, list) and isinstance(last, int):
        if kind == _INSERT:
            inside.insert(last, value)
        elif kind == _REMOVE:
            del inside[last]
        else:
            inside[last] = value
    else:
        raise ValueError("another document")
    return document


def _inside(document: Node, leg: int | str) -> Node:
    if isinstance(document, dict) and isinstance(leg, str) and leg in document:
        return document[leg]
    if isinstance(document, list) and isinstance(leg, int):
        return document[leg]
    raise ValueError("another document")
