"""What memory keeps of data files, and for how long."""

from pathlib import Path

import pyarrow as pa

from support.lake import EAGER
from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.targets.lake.files.access import FOOTERS
from tailrace.targets.lake.files.compact import compact
from tailrace.targets.lake.files.index import FileIndex
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.locate import CACHE

INDEX = FileIndex.build([pa.array(range(100), pa.int64())])


def test_the_oldest_go_when_there_is_no_room_and_those_of_a_file_that_is_forgotten_at_once() -> None:
    cache = IndexCache(3 * INDEX.size)
    for name in ("a\nid", "a\nid, n", "b\nid"):
        cache.begin()
        cache.offer(name, INDEX)
    cache.begin()
    cache.offer("c\nid", INDEX)
    assert cache.get("a\nid") is None and cache.get("a\nid, n") is not None
    cache.forget(["a", "unknown"])
    assert cache.get("a\nid, n") is None and cache.get("b\nid") is not None
    assert cache.size == 2 * INDEX.size
    cache.note("d\nid", INDEX)
    cache.forget(["d"])
    assert not cache.is_unproven("d\nid") and cache.size == 2 * INDEX.size
    cache.forget(["b", "c"])
    assert cache.size == 0 and cache.admits(3 * INDEX.size)


def known(folder: Path) -> tuple[set[str], set[str]]:
    """The data files in it whose keys and whose footers are in memory."""
    ours = f"{folder}/lake/"
    keys = {name.partition("\n")[0] for name in CACHE._entries if ours in name}
    return keys, {name for name in FOOTERS._footers if ours in name}


def test_of_files_that_were_joined_nothing_is_kept(tmp_path: Path) -> None:
    copy = Copy(filled("t", rows=50), tmp_path)
    with copy.running():
        copy.level()
        for number in range(10):
            copy.database.commit(Change("U", 1, 2 + number, str(number)))
            copy.level()
        (schema,) = (table.schema for table in copy.state.tables.values())
    table = copy.lake.table("main", "t")
    before = set(table.live)
    assert len(before) > 10 and all(found == before for found in known(tmp_path))
    assert table.applied is not None
    layout = Layout(schema, table.arrow_schema(schema))
    assert compact(table, table.access, layout, table.applied, EAGER) == len(before)
    assert not any(found & before for found in known(tmp_path))
