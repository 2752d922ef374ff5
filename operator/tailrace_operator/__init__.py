"""The control plane of Tailrace: watches Replicators and SnapshotRequests, runs drivers, reports their state."""
