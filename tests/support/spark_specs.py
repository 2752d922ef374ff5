"""A Replicator whose settings of Spark are looked at."""

from tailrace.contract.resources import ReplicatorSpec


def spec(**target: object) -> ReplicatorSpec:
    return ReplicatorSpec.model_validate(
        {
            "source": {"type": "postgresql", "host": "db", "database": "d", "username": "u"},
            "tables": {"include": ["public.*"]},
            "target": {"type": "delta", "location": "file:///lake", **target},
            "storage": {"location": "file:///log"},
            "driver": {"cores": 3, "memory": "1Gi"},
            "snapshot": {"parallelism": 2},
        }
    )
