"""The effect of a change of a Replicator's spec, field by field. Pure.

Asked by the driver (`LiveSpec`) and by `tailrace diff`; the operator's template hash leaves out the same two lists, and
what is refused are the rules of the models themselves, as the API server enforces them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from tailrace.contract.resources import LIVE_FIELDS, OPERATOR_FIELDS, ReplicatorSpec

Effect = Literal["live", "operator", "restart", "refused"]
"""`live`: the running driver takes it over. `operator`: no part of the driver's work depends on it. `restart`: it is
read at the driver's start. `refused`: immutable."""
_IMMUTABLE = " is immutable"


def effect(field: str) -> Effect:
    """`field`: as users write it, `source.database`."""
    if refusal(field) is not None:
        return "refused"
    top = field.partition(".")[0]
    if top in _aliases(LIVE_FIELDS):
        return "live"
    return "operator" if top in _aliases(OPERATOR_FIELDS) else "restart"


def refusal(field: str) -> str | None:
    """The reason why it cannot be changed; None: it can."""
    return immutable().get(field)


@cache
def immutable() -> Mapping[str, str]:
    """The message of each rule that compares a field with its former value, by the field that it begins with."""
    schema = ReplicatorSpec.model_json_schema()
    models = (schema, *schema["$defs"].values())
    rules = (rule for model in models for rule in model.get("x-kubernetes-validations", ()))
    messages = [rule["message"] for rule in rules if "oldSelf" in rule["rule"]]
    return {message.partition(_IMMUTABLE)[0]: message for message in messages}


@cache
def _aliases(names: frozenset[str]) -> frozenset[str]:
    return frozenset(ReplicatorSpec.model_fields[name].alias or name for name in names)
