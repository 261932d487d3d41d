"""Runs that outlive a machine."""
