"""Messages of the command to the user."""

from __future__ import annotations

import pytest

from steersman.cli.terminal.stderr import StderrMessages

KEY = "key-0123456789abcdef"


def test_a_message_that_a_view_shows_has_no_key_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L13."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    stderr, told = StderrMessages(verbose=False), list[str]()
    stderr.redirect = told.append
    stderr.notify(f"It failed: {KEY} is wrong.")
    assert told == ["It failed: [redacted] is wrong."]
