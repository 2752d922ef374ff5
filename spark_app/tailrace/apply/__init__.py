"""From change log to one atomic commit per target table."""
