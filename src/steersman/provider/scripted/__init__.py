"""The scripted model: plays a script instead of asking a server, and rejects invalid requests."""
