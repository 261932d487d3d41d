"""Compaction: make what the model sees shorter, deterministically, and never split a call from its result."""
