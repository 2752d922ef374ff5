"""What goes when a Replicator goes for good: in the source, in the target and in the change log."""
