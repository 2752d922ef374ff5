"""The driver: brings the parts up, turns its loop, serves status and verbs, takes the parts down."""
