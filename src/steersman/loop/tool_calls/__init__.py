"""The tool calls of one turn: every call passes the gates, starts at most once and gets exactly one result."""
