"""Older lists of holes are removed, the one that is named never."""

from tailrace.errors import Retry
from tailrace.storage import StorageRefused
from tailrace.targets.lake.side_files import KEPT_SECONDS, SideFiles


class Files:
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.away = False

    def delete(self, path: str) -> None:
        if self.away:
            raise Retry("the store is away")
        if path == "kept":
            raise StorageRefused("deleting is not allowed")
        self.deleted.append(path)


def test_a_list_goes_an_hour_after_another_took_its_place_unless_it_is_named_again() -> None:
    files, now = Files(), [0.0]
    side = SideFiles(files, lambda: now[0])  # type: ignore[arg-type]
    for before, after in ((None, "a"), ("a", "b"), ("b", "b"), ("b", "a"), ("a", "a")):
        side.committed(before, after)
        now[0] += 60
    assert files.deleted == []
    now[0] += KEPT_SECONDS
    files.away = True
    side.committed("a", "a")
    files.away = False
    side.committed("a", "a")
    assert files.deleted == ["b"], "a is named"
    side.committed("a", None)
    now[0] += KEPT_SECONDS + 1
    side.committed(None, None)
    side.committed(None, None)
    assert files.deleted == ["b", "a"]


def test_a_list_that_may_not_be_deleted_stays_and_the_next_goes() -> None:
    files, now = Files(), [0.0]
    side = SideFiles(files, lambda: now[0])  # type: ignore[arg-type]
    side.committed("kept", "a")
    side.committed("a", None)
    now[0] += KEPT_SECONDS + 1
    side.committed(None, None)
    assert files.deleted == ["a"]
