"""Sessions in one SQLite file."""
