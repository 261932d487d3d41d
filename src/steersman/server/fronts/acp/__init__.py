"""The Agent Client Protocol, version 1: an agent in an editor, over newline-delimited JSON-RPC."""
