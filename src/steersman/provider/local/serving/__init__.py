"""The child process that serves a model file; it ends when we do."""
