"""What tables of the lake store of Tailrace: samples of each form that a version has written."""

from pathlib import Path

import pytest

from tailrace.batch.applied import AppliedState
from tailrace.errors import TargetRefused
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.iceberg import state as iceberg_state

SAMPLES = Path(__file__).parent / "samples"
APPLIED = AppliedState("a1", 120, 7, frozenset({("1", "x")}), 2, 16384, gap=5, generation=3)


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text().strip()


def test_the_present_form_is_read_and_written_as_the_samples_have_it() -> None:
    delta, mirror = sample("delta-2"), sample("iceberg-2")
    stored = delta_state.Stored(APPLIED, 4, "ff")
    assert delta_state.decode(delta, lambda _: b"", "t") == stored
    assert delta_state.encode(stored, lambda *_: None) == (delta, None)
    told = iceberg_state.Mirror(iceberg_state.Stored(APPLIED), 8051, 6)
    assert iceberg_state.decode_mirror(mirror, "t") == told
    assert iceberg_state.encode_mirror(told) == mirror


def test_the_first_form_is_refused_by_number_and_with_a_way_on() -> None:
    refusal = r"s\.t holds Tailrace's state in format 1, this is format 2"
    with pytest.raises(TargetRefused, match=refusal) as refused:
        delta_state.peek(sample("delta-1"), "s.t")
    assert "move it away" in refused.value.fix
    with pytest.raises(TargetRefused, match=refusal):
        iceberg_state.decode_mirror(sample("iceberg-1"), "s.t")
