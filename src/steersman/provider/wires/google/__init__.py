"""Gemini's `streamGenerateContent`."""
