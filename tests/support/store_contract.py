"""What every store must do: tests for a class in the file of each store, which has a fixture `storage`."""

import pickle
import threading
import time
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.origins import origin
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.errors import Fenced
from tailrace.storage.access import StorageRefused
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


class ObjectStoreContract(StoreContract):
    """What the change log needs of one that is no folder. The file has a fixture `missing`, too: a storage in a place
    that is not there."""

    lacks: ClassVar[str]
    """Words of the refusal of that one."""

    def test_it_keeps_its_word_that_what_exists_is_not_created_again(self, storage: Storage) -> None:
        storage.require_exclusive("probe")
        assert list(storage.list("")) == []

    def test_the_journal_fences_the_lower_epoch(self, storage: Storage) -> None:
        old = JournalWriter.create(storage, origin(), Position(5), "a")
        old.append(Position(6), events=(Heartbeat(),))
        new = JournalWriter.claim(storage, "b")
        with pytest.raises(Fenced):
            old.append(Position(7), events=(Heartbeat(),))
        new.append(Position(8), events=(Heartbeat(),))
        assert JournalReader.open(storage).state == new.state

    def test_parquet_goes_in_and_out_also_in_parts_and_in_a_pickled_storage(self, storage: Storage) -> None:
        table = pa.table({"x": pa.array(range(3_000_000), pa.int64())})
        with storage.open_output("big.parquet") as output:
            pq.write_table(table, output, compression="none", use_dictionary=False)
        assert output.size == storage.size("big.parquet") > 16 << 20
        for path in ("big.parquet", storage.uri("big.parquet")):
            with pickle.loads(pickle.dumps(storage)).open_input(path) as source:
                assert pq.read_table(source).equals(table)

    def test_an_output_that_raises_leaves_nothing(self, storage: Storage) -> None:
        for size in (10, 20 << 20):
            with pytest.raises(RuntimeError), storage.open_output("half") as output:
                output.write(b"x" * size)
                raise RuntimeError("half-way")
            assert not storage.exists("half")

    def test_a_place_that_is_not_there_is_refused_by_name(self, missing: Storage) -> None:
        with pytest.raises(StorageRefused, match=self.lacks):
            missing.create("x", b"1")
