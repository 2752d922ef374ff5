"""Renders the objects that a Replicator owns, as plain documents. Pure."""
