"""Tailrace: live copies of database tables in a lakehouse, by change data capture on Spark."""

__version__ = "0.1.0"
