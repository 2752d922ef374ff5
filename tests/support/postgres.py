"""The embedded PostgreSQL for tests: the class of the demo, under the name that tests import."""

from tailrace.demo.postgres_server import DEFAULTS, LOCAL_TRUST, PostgresServer, ServerFailed, Setting, StopMode

__all__ = ["DEFAULTS", "LOCAL_TRUST", "PostgresServer", "ServerFailed", "Setting", "StopMode"]
