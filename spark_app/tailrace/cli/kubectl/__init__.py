"""`kubectl tailrace`: Replicators and SnapshotRequests on a cluster, with the rights of its user."""

PROGRAM = "kubectl tailrace"
