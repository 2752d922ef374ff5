"""MySQL and MariaDB for tests: the class of the demo, under the name that tests import."""

from demo.mysql_server import MARIADB_NEWEST, MYSQL, MysqlServer, ServerFailed

__all__ = ["MARIADB_NEWEST", "MYSQL", "MysqlServer", "ServerFailed"]
