"""What the status says while batches wait for the target's product."""

from tailrace.targets.pauses import TargetPauses


def test_one_wait_that_ends_leaves_the_other_told() -> None:
    pauses = TargetPauses()
    first, second = pauses.told("why"), pauses.told("why")
    with first:
        second.__enter__()
    assert pauses.why == "why"
    second.__exit__(None, None, None)
    assert pauses.why is None
