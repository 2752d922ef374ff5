"""The embedded demonstration."""
