"""What objects are called, and whose they are."""

import pytest

from tailrace_operator.resources import names


@pytest.mark.parametrize(
    ("kind", "name", "whose"),
    [
        ("StatefulSet", "shop-driver", "shop"),
        ("Job", "shop-drop", "shop"),
        ("Job", "shop-check-29384715", "shop"),
        ("Job", "a-check-check-1", "a-check"),
        ("Job", "shop-check-asked", None),
        ("Job", "shop-check", None),
        ("Job", "nightly-29384715", None),
        ("StatefulSet", "shop-check-1", None),
        ("Deployment", "shop-driver", None),
    ],
)
def test_an_event_is_about_the_replicator_whose_job_or_stateful_set_it_names(
    kind: str, name: str, whose: str | None
) -> None:
    assert names.replicator_of(kind, name) == whose
