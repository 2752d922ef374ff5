"""BigQuery as a target: `target.BigQueryTarget` opens it, behind `tailrace.targets.api`."""
