"""Keeping keys out of texts: servers quote what they were sent, and what quotes them may cut the quotation short."""

from __future__ import annotations

import re

REDACTED = "[redacted]"
# What is shorter is no secret but a word such as "none", and hiding it would spoil the text.
_MIN_SECRET_LENGTH = 6
# The beginning of a key is hidden too where this much of it stands at the end of what was cut.
_MIN_PREFIX_LENGTH = 8
_MAX_KEY_LENGTH = 4_000


def redact(text: str, *secrets: str | None) -> str:
    """The text without the secrets, and without the beginning of one that a cut may have left.

    They have to come together: keys of one provider begin alike, and where the beginning of one was hidden first, the
    rest of another would not be known any more.
    """
    keys = [secret for secret in secrets if secret is not None and len(secret) >= _MIN_SECRET_LENGTH]
    begun = [key for key in keys if key[:_MIN_PREFIX_LENGTH] in text]
    parts = {key[:length] for key in begun for length in range(min(_MIN_PREFIX_LENGTH, len(key)), len(key) + 1)}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, REDACTED)
    return text


# The keys of the providers by how they begin, and whatever stands behind "Bearer"; servers put stars into some.
_KEY_PATTERN = (
    r"\b(?:sk|sess|pk|rk)-[\w*.-]{3,}"
    r"|\b(?:sk|gsk|xai|key|or|pk)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{10,}|\bAQ\.[\w-]{10,}|\bya29\.[\w.-]{10,}"
    r"|(?i:\bbearer)\s+[\w*.~+/=-]{6,}"
)


def redact_key_patterns(text: str, most: int) -> str:
    """The text, or the beginning of a long one, without anything that looks like a key, whosever it is."""
    # Cut after the keys are gone: half a key is no longer found.
    shown = re.sub(_KEY_PATTERN, REDACTED, text[: most + _MAX_KEY_LENGTH])
    return shown if len(shown) <= most and len(text) <= most + _MAX_KEY_LENGTH else f"{shown[: most - 3]}..."
