"""Agents together: what one asks of others is part of its own work, within its limits, its rights and its cancel."""
