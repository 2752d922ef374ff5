"""Snowflake as a target: `target.SnowflakeTarget` opens it, behind `tailrace.targets.api`."""
