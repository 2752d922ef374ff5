"""The driver: `launch` and `assembly` make its parts, `driver` runs them, `once` tells when `--once` ends."""
