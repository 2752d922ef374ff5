"""What every store must do: tests for a class in the file of each store, which has a fixture `storage`."""

import threading
import time

import pytest

from tailrace.storage.store import AlreadyExists, NotFound, Storage


class StoreContract:
    def test_objects_are_created_once_replaced_read_listed_and_deleted(self, storage: Storage) -> None:
        storage.create("journal/1.json", b"one")
        with pytest.raises(AlreadyExists):
            storage.create("journal/1.json", b"two")
        assert storage.get("journal/1.json") == b"one"
        storage.put("journal/1.json", b"three")
        storage.put("journal/rollup/1.json", b"")
        assert storage.get(storage.uri("journal/1.json")) == b"three"
        assert list(storage.list("journal/")) == [("journal/1.json", 5), ("journal/rollup/1.json", 0)]
        assert list(storage.list("journal/r")) == [("journal/rollup/1.json", 0)]
        storage.delete("journal/1.json")
        storage.delete("journal/1.json")
        assert not storage.exists("journal/1.json")
        with pytest.raises(NotFound):
            storage.get("journal/1.json")
        with pytest.raises(NotFound):
            storage.size("nowhere/at all")

    def test_objects_of_a_folder_are_listed_with_their_age_and_under_names_that_delete_them(
        self, storage: Storage
    ) -> None:
        before = time.time()
        for name in ("t/data/a b.parquet", "t/metadata/deep/m%20.avro", "t2/data/c.parquet"):
            storage.create(name, b"x")
        found = dict(storage.aged(storage.uri("t")))
        assert set(found) == {storage.uri("t/data/a b.parquet"), storage.uri("t/metadata/deep/m%20.avro")}
        assert all(abs(changed - before) < 60 for changed in found.values())
        assert list(storage.aged(storage.uri("nothing"))) == []
        storage.delete_many([*found, storage.uri("t/data/.a b.parquet.crc")])
        assert list(storage.aged(storage.uri("t"))) == []
        assert storage.exists("t2/data/c.parquet")

    def test_of_many_creators_exactly_one_succeeds(self, storage: Storage) -> None:
        won: list[int] = []

        def create(number: int) -> None:
            try:
                storage.create("journal/7.json", str(number).encode())
            except AlreadyExists:
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.get("journal/7.json") == str(won[0]).encode()
        assert list(storage.list("")) == [("journal/7.json", len(str(won[0])))]

    def test_many_objects_are_deleted_at_once_and_missing_ones_are_no_error(self, storage: Storage) -> None:
        for number in range(5):
            storage.put(f"segments/{number}", b"x")
        storage.delete_many([f"segments/{number}" for number in range(1, 7)])
        assert [path for path, _ in storage.list("segments/")] == ["segments/0"]
        storage.delete_many([])
