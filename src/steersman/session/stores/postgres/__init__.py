"""Sessions in a PostgreSQL database."""
