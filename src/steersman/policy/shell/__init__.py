"""Reads shell commands for the approval policy. Pure: nothing here runs a command or looks at a file."""
