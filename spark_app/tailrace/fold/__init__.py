"""Arrays for one batch of one table: what becomes of each key, whatever the target is. Knows no target."""
