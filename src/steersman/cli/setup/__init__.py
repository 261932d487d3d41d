"""Turns options, settings and what the machine offers into an agent that is ready to run."""
