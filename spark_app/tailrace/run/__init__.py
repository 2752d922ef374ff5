"""Processes, command line and status server."""
