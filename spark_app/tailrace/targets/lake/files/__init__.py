"""Data files of lake tables, whatever the format: reading, writing, indexes, vectors."""
