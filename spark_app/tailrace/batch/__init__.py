"""The contents of one commit. Pure."""
