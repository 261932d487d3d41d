"""Replay: run a recorded session or cassette again without a model."""
