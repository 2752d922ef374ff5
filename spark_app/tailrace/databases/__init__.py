"""The commons of sources and targets that are database servers: place, account, secrets, certificates, connections."""
