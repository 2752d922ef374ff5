"""Databases as targets, whatever their product: all tables of a Replicator move by one transaction."""
