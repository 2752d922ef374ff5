"""What goes when a Replicator goes for good: in the source, in the target and in the change log. And the copies of
tables that the source dropped."""
