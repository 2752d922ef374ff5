"""Target tables."""
