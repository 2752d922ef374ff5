"""The console: a web page over a read-only REST API, for the Replicators of some manifests. `tailrace console`."""
