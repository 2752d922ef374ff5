"""Runs Argo CD's scripts in Lua 5.1 (what Argo CD's interpreter speaks), with the libraries that Argo CD gives them."""

from copy import deepcopy
from typing import Any

from lupa.lua51 import LuaRuntime, lua_type

REMOVED = ("io", "require", "dofile", "loadfile", "loadstring", "load", "debug", "package", "python", "string", "math")
"""Argo CD opens the base and table libraries, and of `os` only the clock."""


def run(script: str, document: dict[str, Any]) -> Any:
    """The value that the script returns for the object."""
    lua: Any = LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    names = lua.globals()
    for name in REMOVED:
        names[name] = None
    names.os = lua.table(time=names.os.time, date=names.os.date)
    names.obj = _table(lua, deepcopy(document))
    return _plain(lua.execute(script))


def _table(lua: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({key: _table(lua, inner) for key, inner in value.items()})
    if isinstance(value, list):
        return lua.table_from([_table(lua, inner) for inner in value])
    return value


def _plain(value: Any) -> Any:
    """A table with the keys 1…n is a list, as Argo CD reads it."""
    if lua_type(value) != "table":
        return value
    pairs = dict(value.items())
    if pairs and sorted(map(str, pairs)) == sorted(str(n) for n in range(1, len(pairs) + 1)):
        return [_plain(pairs[n]) for n in range(1, len(pairs) + 1)]
    return {key: _plain(inner) for key, inner in pairs.items()}
