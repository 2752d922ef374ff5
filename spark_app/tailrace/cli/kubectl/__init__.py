"""`kubectl tailrace`: Replicators and SnapshotRequests on a cluster, with the rights of whoever calls it."""
