"""Connections to MySQL and MariaDB."""
