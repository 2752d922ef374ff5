"""Random schedules of the chunk and apply rules for minutes: `TAILRACE_SOAK_RULE_SECONDS` (300) for each capture."""

import os
import random
import time

import pytest
from model.capture import Capture
from model.filters import FILTERS
from model.schedules import explain, search

SECONDS = float(os.environ.get("TAILRACE_SOAK_RULE_SECONDS", "300"))
AT_ONCE = 1000


@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("capture", [Capture, *FILTERS], ids=lambda capture: capture.__name__)
def test_the_target_shows_only_what_the_source_held(capture: type[Capture]) -> None:
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        found = search(seed, AT_ONCE, capture=capture)
        assert found is None, f"seed {seed}: {explain(found, capture=capture)}"
        runs += AT_ONCE
    print(f"{capture.__name__}: {runs} schedules")
