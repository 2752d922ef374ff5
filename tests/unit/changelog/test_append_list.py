"""Lists of the state that grow: values that share their items, so that many chunks cost no more copies than chunks."""

from random import Random

import pytest
from pydantic import BaseModel

from support.journals import Journal, table_schema
from support.states import chunk
from tailrace.changelog import append_list
from tailrace.changelog.append_list import AppendList
from tailrace.changelog.records.snapshots import SnapshotPlanned, SnapshotTableStarted
from tailrace.changelog.records.tables import Applied, TableAdded
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.state import LogState, fold


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_tuple_that_shares_its_items_whoever_goes_on_from_which_value(seed: int) -> None:
    random = Random(seed)
    pairs: list[tuple[AppendList[int], tuple[int, ...]]] = [(AppendList(), ())]
    for step in range(200):
        value, plain = pairs[-1] if random.random() < 0.7 else random.choice(pairs)
        if random.random() < 0.7:
            pairs.append((value.append(step), (*plain, step)))
        else:
            count = random.randint(0, len(plain))
            pairs.append((value.drop(count), plain[count:]))
    for value, plain in pairs:
        assert (tuple(value), len(value)) == (plain, len(plain)) and value == plain
        assert list(value[1:3]) == list(plain[1:3]) and bool(value) == bool(plain)
        assert not plain or (value[0], value[-1], value[len(plain) - 1]) == (plain[0], plain[-1], plain[-1])
        with pytest.raises(IndexError):
            value[len(plain)]


class Model(BaseModel):
    items: AppendList[int] = AppendList()


def test_in_a_document_it_is_a_list() -> None:
    model = Model(items=AppendList([1]).append(2).drop(1))
    assert model.model_dump_json() == '{"items":[2]}'
    assert Model.model_validate_json(model.model_dump_json()) == model
    assert Model().items == () and Model.model_validate({"items": (1,)}).items == (1,)
    assert Model().items.append(1) == (1,) and Model().items == ()
    with pytest.raises(ValueError, match="int"):
        Model.model_validate({"items": ["x"]})


def folded(chunks: int, apply_every: int) -> LogState:
    entries = Journal(Random(0))
    state = fold(LogState(), entries.origin())
    start = (
        TableAdded(table=table_schema(1), edge="1"),
        SnapshotPlanned(snapshot_id="s", tables=(1,)),
        SnapshotTableStarted(snapshot_id="s", table_id=1, max_key=("9",), estimated_rows=1),
    )
    state = fold(state, entries.plain(events=start))
    for number in range(1, chunks + 1):
        read = chunk(1, number, replay_point=state.last_seq + 1, high=state.position)
        record = entries.plain(events=(read,))
        state = fold(state, record)
        if number % apply_every == 0:
            applied = Applied(
                table_id=1, applied_seq=Seq(0), applied_record=RecordNumber(record.number - apply_every // 2)
            )
            state = fold(state, entries.plain(events=(applied,)))
    return state


def test_as_many_items_are_copied_as_there_are_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not half their number squared, as with tuples."""
    copied = [0]
    real = append_list._copy

    def counting(value: AppendList[int]) -> list[int]:
        copied[0] += len(value)
        return real(value)

    monkeypatch.setattr(append_list, "_copy", counting)
    for chunks, every in ((400, 10_000), (400, 20), (400, 1)):
        copied[0] = 0
        state = folded(chunks, every)
        assert len(state.snapshots["s"].tables[1].chunks) == chunks
        assert copied[0] <= 2 * chunks, (chunks, every)
