"""The driver: starts the parts, runs its loop, serves status and verbs, shuts the parts down."""
