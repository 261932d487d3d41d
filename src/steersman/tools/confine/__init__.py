"""Confines tools: files beneath a root, environment variables, a sandbox, IP addresses. A check that fails refuses."""
