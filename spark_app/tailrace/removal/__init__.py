"""The removal of what a deleted Replicator has in the source, in the target and in the change log. It also removes the
copies of tables that the source dropped."""
