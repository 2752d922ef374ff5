"""The apply rule and the replay point against a simulated source, and the proof that the check can fail."""

import random

import pytest
from model import mutants
from model.capture import Capture
from model.filters import FILTERS, MUTANTS, FilteredCapture
from model.schedules import explain, make_rule, search

from tailrace.batch.rule import ApplyRule, Chunk

SCHEDULES = 2000
ENOUGH = 6000
"""Every mutant is caught by fewer schedules (the slowest needs about 2,000)."""
QUICK = 4
"""A seed with which every mutant is caught early."""


@pytest.fixture
def fresh() -> int:
    """A seed of this run's own."""
    return random.SystemRandom().randrange(2**32)


def test_the_target_shows_only_what_the_source_held(fresh: int) -> None:
    """Other schedules in each run; `tests/soak/test_soak_rule.py` runs them for minutes."""
    found = search(fresh, SCHEDULES)
    assert found is None, f"seed {fresh}: {explain(found)}"


@pytest.mark.parametrize("mutant", mutants.RULES, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_caught(mutant: type[ApplyRule[int]]) -> None:
    assert search(QUICK, ENOUGH, rule=lambda: mutant(3)) is not None


@pytest.mark.parametrize("mutant", mutants.CAPTURES, ids=lambda mutant: mutant.__name__)
def test_a_broken_capture_is_caught(mutant: type[Capture]) -> None:
    assert search(QUICK, ENOUGH, make_rule, mutant) is not None


@pytest.mark.parametrize("filtering", FILTERS, ids=lambda filtering: filtering.__name__)
def test_a_filtered_target_shows_only_rows_of_the_source_that_match(
    filtering: type[FilteredCapture], fresh: int
) -> None:
    found = search(fresh, SCHEDULES // 4, capture=filtering)
    assert found is None, f"seed {fresh}: {explain(found, capture=filtering)}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_row_filter_is_caught(mutant: type[FilteredCapture]) -> None:
    assert search(QUICK, ENOUGH, capture=mutant) is not None


def test_of_chunks_with_one_replay_point_the_one_registered_last_decides() -> None:
    """Between them rows changed without an event."""
    older, newer = (Chunk[int](record, 5, {1: (label,)}) for record, label in ((2, "old"), (3, "new")))
    assert make_rule().deciding([older, newer]) == {1: newer}
