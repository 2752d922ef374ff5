"""Applies the change log: one atomic commit per target table."""
