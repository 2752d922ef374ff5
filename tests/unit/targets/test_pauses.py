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


class Session:
    def __init__(self, said: str | None) -> None:
        self.said = said

    def silence(self) -> str | None:
        return self.said


def test_a_session_that_waits_for_its_server_is_asked_as_long_as_it_exists() -> None:
    pauses = TargetPauses()
    idle, busy = Session(None), Session("copy has not answered for 40 s")
    pauses.watch(idle)
    pauses.watch(busy)
    assert pauses.why == "copy has not answered for 40 s"
    with pauses.told("a load job waits for its turn"):
        assert pauses.why == "a load job waits for its turn"
    del busy
    assert pauses.why is None
