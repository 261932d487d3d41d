"""Fixtures of sessions that tests of servers use as well."""

from tests.session.conftest import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
