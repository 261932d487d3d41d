"""Parses shell commands for the approval policy. Pure: nothing here runs a command or reads a file."""
