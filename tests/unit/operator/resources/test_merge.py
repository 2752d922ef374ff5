"""A template under the operator's fields: maps, lists by their key, and what replaces what."""

from typing import Any

import pytest

from tailrace_operator.resources.merge import merged

A, B = {"name": "a"}, {"name": "b"}
CLAIM = {"name": "a", "persistentVolumeClaim": {}}
MOUNT = {"mountPath": "/a", "name": "x"}


@pytest.mark.parametrize(
    ("under", "over", "both"),
    [
        ({"x": 1, "y": {"z": 1}}, {"y": {"v": 2}}, {"x": 1, "y": {"z": 1, "v": 2}}),
        ({"x": [1, 2]}, {"x": [3]}, {"x": [3]}),
        ({"tolerations": [1, 2]}, {"tolerations": [2, 3]}, {"tolerations": [2, 3, 1]}),
        ({"containers": [A | {"tty": True}, B]}, {"containers": [A | {"image": "i"}]},
         {"containers": [A | {"tty": True, "image": "i"}, B]}),
        ({"volumes": [A | {"emptyDir": {}}, B]}, {"volumes": [CLAIM]}, {"volumes": [CLAIM, B]}),
        ({"env": [A | {"value": "1"}]}, {"env": [A | {"valueFrom": {}}, B]}, {"env": [A | {"valueFrom": {}}, B]}),
        ({"volumeMounts": [{"mountPath": "/a", "subPath": "b"}]}, {"volumeMounts": [MOUNT]}, {"volumeMounts": [MOUNT]}),
        ({"containers": "nonsense"}, {"containers": [A]}, {"containers": [A]}),
        ({"containers": ["nonsense", B]}, {"containers": [A]}, {"containers": [A, "nonsense", B]}),
    ],
    ids=["maps", "lists", "tolerations", "containers", "volumes", "env", "mounts", "no-list", "no-container"],
)  # fmt: skip
def test_what_is_over_counts(under: Any, over: Any, both: Any) -> None:
    assert merged(under, over) == both
