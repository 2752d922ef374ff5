"""Carries out decisions: the API server and the drivers' verbs."""
