"""Builds the commit of a batch, with arrays."""
