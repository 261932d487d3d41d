"""The commands that put the agent of a folder behind a protocol."""
