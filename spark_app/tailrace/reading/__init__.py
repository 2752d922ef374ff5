"""Executes snapshots: planner, chunk read in a Spark task or in the driver, registered chunk."""
