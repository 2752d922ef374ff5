"""MySQL and MariaDB as a target: `target.MysqlTarget` opens it, behind `tailrace.targets.api`."""
