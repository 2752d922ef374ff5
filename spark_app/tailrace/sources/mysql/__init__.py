"""MySQL and MariaDB as a source: not reachable from a manifest before its end-to-end proof passes."""
