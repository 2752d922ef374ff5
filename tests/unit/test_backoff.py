from tailrace.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_are_short_again_after_a_success() -> None:
    backoff, pauses = Backoff(3.0), []
    for _ in range(4):
        backoff.failed(100.0)
        pauses.append(backoff.due - 100.0)
    assert pauses == [0.5, 1.0, 2.0, 3.0]
    backoff.reset()
    assert backoff.is_waiting(102.0), "another step failed a moment ago"
    backoff.failed(200.0)
    assert backoff.due == 200.5 and not backoff.is_waiting(200.5)


def test_it_is_worn_out_by_failures_without_a_success_and_by_no_waiting() -> None:
    backoff = Backoff(30.0)
    for now in (0.0, 50.0, 70.0):
        backoff.failed(now)
    assert backoff.is_exhausted(70.0, 60.0) and not backoff.is_exhausted(60.0, 60.0)
    backoff.waited(80.0)
    assert not backoff.is_exhausted(1e9, 60.0)
    backoff.failed(90.0)
    assert not backoff.is_exhausted(150.0, 60.0) and backoff.is_exhausted(151.0, 60.0)


def test_jitter_spreads_a_pause_to_both_sides() -> None:
    dues = set()
    for _ in range(200):
        backoff = Backoff(30.0, jitter=0.25)
        backoff.failed(0.0)
        dues.add(backoff.due)
    assert 0.375 <= min(dues) < 0.45 and 0.55 < max(dues) <= 0.625
