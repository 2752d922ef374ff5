"""Executes snapshots: planner, Spark task, registered chunk."""
