"""MySQL and MariaDB for tests: the class of the demo, under the name that tests import."""

from demo.mysql_server import MARIADB_NEWEST, MYSQL, MysqlServer, ServerFailed

TARGETS = (MYSQL, "mariadb-10.11", MARIADB_NEWEST)
"""Those that can be a target: MySQL 8.0.15 is too old for it."""
__all__ = ["MARIADB_NEWEST", "MYSQL", "TARGETS", "MysqlServer", "ServerFailed"]
