"""A source whose log is read from the change log of another Replicator, and its rows from the database itself."""
