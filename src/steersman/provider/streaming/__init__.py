"""Wrappers around any `StreamFn`: normal form, retry, fallback, timeouts. They know nothing of HTTP."""
