from typing import Any

import pytest

from support.resources import replicator
from tailrace.contract.resources import Replicator
from tailrace.sources.dropped import drops


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        ({"onTableDrop": "Keep"}, False),
        ({"onTableDrop": "Drop"}, True),
        ({"onTableDrop": "Drop", "options": [{"match": "shop.o*", "onTableDrop": "Keep"}]}, False),
        ({"onTableDrop": "Drop", "options": [{"match": "shop.x", "onTableDrop": "Keep"}]}, True),
        ({"options": [{"match": "shop.orders", "onTableDrop": "Drop"}]}, True),
        ({"onTableDrop": "Drop", "options": [{"match": "shop.orders"}]}, True),
        ({"onTableDrop": "Drop", "tables": {"include": ["shop.items"]}}, False),
        ({"onTableDrop": "Drop", "tables": {"include": ["shop.*"], "exclude": ["shop.orders"]}}, False),
    ],
)
def test_only_the_policy_of_a_table_that_is_still_selected_counts(spec: dict[str, Any], expected: bool) -> None:
    document = replicator()
    document["spec"] |= {"tables": {"include": ["shop.*"]}} | spec
    assert drops(Replicator.model_validate(document).spec, "shop", "orders") is expected
