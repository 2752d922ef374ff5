"""What tables of the lake store of Tailrace: samples of each form that a version has written."""

from pathlib import Path

import pytest

from tailrace.batch.applied import AppliedState
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import TargetRefused
from tailrace.targets.lake.delta import state as delta_state
from tailrace.targets.lake.iceberg import state as iceberg_state

SAMPLES = Path(__file__).parent / "lake" / "samples"
APPLIED = AppliedState(
    "a1", Seq(120), RecordNumber(7), frozenset({("1", "x")}), 2, 16384, gap=RecordNumber(5), generation=RecordNumber(3)
)


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text().strip()


def test_the_present_form_is_read_and_written_as_the_samples_have_it() -> None:
    delta, mirror = sample("delta-3"), sample("iceberg-3")
    stored = delta_state.StoredDomain(APPLIED, 4, "ff")
    assert delta_state.decode(delta, lambda _: b"", "t") == stored
    assert delta_state.encode(stored, lambda *_: None) == (delta, None)
    told = iceberg_state.Mirror(iceberg_state.StoredSummary(APPLIED), 8051, 6)
    assert iceberg_state.decode_mirror(mirror, "t") == told
    assert iceberg_state.encode_mirror(told) == mirror


@pytest.mark.parametrize("form", [1, 2])
def test_a_former_form_is_refused_by_number_and_with_a_way_on(form: int) -> None:
    refusal = rf"s\.t holds Tailrace's state in format {form}, this is format 3"
    with pytest.raises(TargetRefused, match=refusal) as refused:
        delta_state.peek(sample(f"delta-{form}"), "s.t")
    assert "move it away" in refused.value.fix
    with pytest.raises(TargetRefused, match=refusal):
        iceberg_state.decode_mirror(sample(f"iceberg-{form}"), "s.t")
