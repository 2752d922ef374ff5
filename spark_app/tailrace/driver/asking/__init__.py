"""Answers of the driver: to the operator and the command line while it runs; about a Replicator before it starts."""
