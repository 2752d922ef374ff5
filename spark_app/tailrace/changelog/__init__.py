"""The change log: journal and segments on object storage or a folder."""
