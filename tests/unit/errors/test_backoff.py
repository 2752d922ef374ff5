from tailrace.errors import Retry, StorageFull, Where, met_at
from tailrace.errors.backoff import LONGEST_OUTAGE_PAUSE, Backoff, Outages


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


def of(where: Where) -> Retry:
    try:
        with met_at(where):
            raise Retry.of_place("away")
    except Retry as error:
        return error


def test_an_error_of_one_table_is_told_and_holds_nothing_up() -> None:
    outages = Outages()
    assert outages.met(Retry("s.t was renamed"), 0) and outages.met(ValueError(), 0)
    assert not outages.is_waiting(0, "source")


def test_pauses_grow_until_the_place_answers() -> None:
    outages, now, pauses = Outages(), 0.0, []
    for _ in range(9):
        assert outages.met(of("source"), now) and not outages.met(of("source"), now)
        assert not outages.is_waiting(now, "target")
        began = now
        while outages.is_waiting(now, "source"):
            now += 0.5
        pauses.append(now - began)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30] and pauses[-1] == LONGEST_OUTAGE_PAUSE
    assert outages.outlasted(of("source"), now, 100) and not outages.outlasted(of("source"), now, 1000)
    outages.answered(now, ("target",))
    assert outages.outlasted(of("source"), now, 100)
    outages.answered(now)
    assert not outages.outlasted(of("source"), now, 0)
    assert outages.met(of("source"), now) and not outages.is_waiting(now + 0.5, "source")


def test_what_was_asked_before_an_outage_does_not_end_it() -> None:
    outages = Outages()
    assert outages.met(of("source"), 10)
    outages.answered(10.1)
    assert outages.is_waiting(10.2, "source")
    outages.answered(10.5)
    assert not outages.is_waiting(10.5, "source") and outages.met(of("source"), 10.5)


def test_errors_that_differ_in_paths_alone_are_told_once() -> None:
    outages = Outages()
    with_paths = [Retry.of_place(f"s3://lake/s/t{number}/x: connection refused") for number in range(3)]
    assert [outages.met(error, 0) for error in with_paths] == [True, False, False]
    assert outages.met(StorageFull("file:///lake/t1: no space"), 0), "another fault"
    assert outages.met(Retry.of_place("s3://lake/s/t1/x: access denied"), 0)
