"""Snapshots of the state at hand by table: the same as a look at all of them, whatever the history."""

import copy
import pickle
from random import Random

import pytest

from support.states import log_state, snapshot
from tailrace.changelog.records.snapshots import SnapshotEnded, SnapshotPlanned
from tailrace.changelog.snapshot_map import SnapshotMap
from tailrace.changelog.state import LogState, SnapshotState

TABLES = range(5)


def planned(name: str, random: Random) -> SnapshotState:
    tables = tuple(sorted(random.sample(TABLES, random.randint(0, 3))))
    takes_over = random.random() < 0.2
    return snapshot(SnapshotPlanned(snapshot_id=name, tables=tables, verify=takes_over, accepts=tables * takes_over))


def require_alike(known: SnapshotMap[SnapshotState]) -> None:
    """What it answers is what a look at all of them finds, in the same order."""
    all_of_them = list(known.values())
    for table_id in TABLES:
        assert list(known.of(table_id)) == [s for s in all_of_them if table_id in s.tables]
    assert list(known.open()) == [s for s in all_of_them if s.ended is None]
    assert known.ended == [key for key, s in known.items() if s.ended is not None]
    assert list(known.taking_over()) == [s for s in all_of_them if s.plan.accepts]


@pytest.mark.parametrize("seed", range(20))
def test_it_answers_what_a_look_at_all_snapshots_would(seed: int) -> None:
    random = Random(seed)
    values: list[tuple[SnapshotMap[SnapshotState], dict[str, SnapshotState]]] = [(SnapshotMap(), {})]
    for step in range(60):
        before, plain = random.choice(values[-3:])
        known, plain = before.copy(), dict(plain)
        name = random.choice(list(plain)) if plain and random.random() < 0.6 else f"s{step}"
        found = plain.get(name)
        if found is None:
            known[name] = plain[name] = planned(name, random)
        elif random.random() < 0.3:
            del known[name], plain[name]
        elif found.ended is None and random.random() < 0.5:  # as the fold ends one: behind all others
            ended = SnapshotEnded(snapshot_id=name, outcome="completed")
            over = found.model_copy(update={"ended": ended})
            del known[name], plain[name]
            known[name] = plain[name] = over
        elif found.ended is None:
            known[name] = plain[name] = found.model_copy(update={"suspended": not found.suspended})
        values.append((known, plain))
    for known, plain in values:
        assert known == plain and list(known) == list(plain), "a copy that is changed leaves the others alone"
        require_alike(known)


def test_it_comes_back_from_documents_and_copies_as_it_was() -> None:
    random = Random(7)
    state = log_state(snapshots={name: planned(name, random) for name in "abcdefgh"})
    assert len(list(state.snapshots.taking_over())) > 0
    read = LogState.model_validate_json(state.model_dump_json())
    for known in (read.snapshots, pickle.loads(pickle.dumps(state)).snapshots, copy.deepcopy(state).snapshots):
        assert known == state.snapshots and isinstance(known, SnapshotMap)
        require_alike(known)
