"""The character set of each collation's number, which table maps name. Asked once per stream."""

from tailrace.databases.mysql.connect import Connection, execute, server_of, source_errors

BINARY = 63
"""The number of what is no text."""


def charsets(connection: Connection) -> dict[int, str]:
    """MariaDB has from 10.10 on collations for every character set under one name, and their numbers in a table of
    their own."""
    server = server_of(connection)
    apart = server.product == "mariadb" and server.version >= (10, 10)
    table = "collation_character_set_applicability" if apart else "collations"
    with source_errors("looking at collations"):
        found = execute(connection, f"SELECT id, character_set_name FROM information_schema.{table}")
    return {int(number): str(name) for number, name in found if number is not None and name is not None}
