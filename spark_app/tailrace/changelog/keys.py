"""Keys of rows as the change log, the snapshots and the targets' states name them."""

Key = tuple[str, ...]
"""A row's key as the source's text of the key columns, in key order."""
