"""PostgreSQL as a target: `target.PgTarget` opens it, behind `tailrace.targets.api`."""
