"""PostgreSQL 14 to 18 as a source."""
