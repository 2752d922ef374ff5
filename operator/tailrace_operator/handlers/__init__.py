"""Kopf's side: watches feed the index, the scheduler runs the loop for each object that is due."""
