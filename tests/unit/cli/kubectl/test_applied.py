"""Which document of a changed manifest the API server is asked about."""

import pytest

from tailrace.cli.kubectl.applied import Unasked, as_stored
from tailrace.cli.kubectl.cluster import Cluster

ONE = "apiVersion: tailrace.dev/v1alpha1\nkind: Replicator\nmetadata: {name: shop}\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: [", "is not YAML"),
        ("a: 2026-99-99", "is not YAML"),
        ("", "does not hold one Replicator shop"),
        ("- 1", "does not hold one Replicator shop"),
        (ONE.replace("shop", "other"), "does not hold one Replicator shop"),
        (ONE.replace("{name: shop}", "shop"), "does not hold one Replicator shop"),
        (f"{ONE}---\n{ONE}", "does not hold one Replicator shop"),
        (ONE.partition("\n")[2], "does not hold one Replicator shop"),
    ],
)
def test_a_file_that_cannot_be_applied_is_left_to_the_driver_to_judge(content: str, why: str) -> None:
    with pytest.raises(Unasked, match=why):
        as_stored(Cluster(None, None), "shop", content.encode())
