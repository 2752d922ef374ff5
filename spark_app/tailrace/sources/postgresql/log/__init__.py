"""PostgreSQL's log: from the replication connection to typed rows."""
