"""Source databases, one folder each."""
