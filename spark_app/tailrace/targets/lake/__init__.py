"""Lake tables (Delta Lake, Apache Iceberg) written by locate and mark."""
