"""A manifest that no longer selects most of the captured tables must say that this is meant."""

import re

import pytest

from tailrace.contract.resources import TablesSpec
from tailrace.errors import RemovalUnconfirmed
from tailrace.sources.removals import require_confirmed

BEFORE = {("shop", f"t{i}"): True for i in range(1, 5)}


def code_for(tables: TablesSpec, before: dict[tuple[str, str], bool]) -> str:
    with pytest.raises(RemovalUnconfirmed) as met:
        require_confirmed(tables, before)
    found = re.search(r"confirmRemoval: '([0-9a-f]{8})'", met.value.fix)
    assert found is not None
    return found[1]


def test_half_of_the_tables_may_go_and_more_are_named_with_the_code_that_confirms_it() -> None:
    require_confirmed(TablesSpec(include=("shop.*",), exclude=("shop.t1", "shop.t2")), BEFORE)
    most = TablesSpec(include=("shop.t4",))
    with pytest.raises(RemovalUnconfirmed, match=r"no longer select 3 of 4 tables: shop.t1, shop.t2, shop.t3\."):
        require_confirmed(most, BEFORE)
    code = code_for(most, BEFORE)
    require_confirmed(most.model_copy(update={"confirm_removal": code}), BEFORE)


def test_a_confirmation_does_not_stay_in_force_for_other_tables() -> None:
    code = code_for(TablesSpec(include=("shop.t4",)), BEFORE)
    with pytest.raises(RemovalUnconfirmed, match=f"; confirmRemoval {code} is for other tables"):
        require_confirmed(TablesSpec(include=("Shop.*",), confirm_removal=code), BEFORE)
    # Afterwards it may stay: what is left is guarded as before.
    left = {("shop", "t4"): True}
    require_confirmed(TablesSpec(include=("shop.t4",), confirm_removal=code), left)
    with pytest.raises(RemovalUnconfirmed):
        require_confirmed(TablesSpec(include=("shop.x",), confirm_removal=code), left)


def test_stopped_tables_do_not_count_but_are_named() -> None:
    before = BEFORE | {("shop", "t1"): False, ("shop", "t2"): False, ("shop", "t3"): False}
    require_confirmed(TablesSpec(include=("shop.t4",)), before)
    with pytest.raises(RemovalUnconfirmed, match=r"shop\.t1, shop\.t2, shop\.t3, shop\.t4"):
        require_confirmed(TablesSpec(include=("x.*",)), before)
    require_confirmed(TablesSpec(include=("x.*",)), dict.fromkeys(BEFORE, False))
    require_confirmed(TablesSpec(include=("x.*",)), {})


def test_no_more_tables_are_named_than_a_message_bears() -> None:
    before = {("shop", f"t{i:03}"): True for i in range(100)}
    with pytest.raises(RemovalUnconfirmed, match=r"of 100 tables: .*, shop\.t019 and 80 more\."):
        require_confirmed(TablesSpec(include=("x.*",)), before)
