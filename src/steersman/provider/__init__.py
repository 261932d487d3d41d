"""Talking to a model: everything is, or wraps, a `StreamFn`. A failure is the last event of a stream, not a raise."""
