"""The driver: `launch` makes its parts, `driver` runs and shuts them down, `once` knows when `--once` is done."""
