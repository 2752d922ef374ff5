"""MySQL's and MariaDB's binary log, from the wire to typed rows."""
