"""The parts that MySQL and PostgreSQL share: each product completes them with what its own log and catalog say."""
