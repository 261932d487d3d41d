"""Redaction: remove keys from text, whole or truncated. Servers quote keys in their errors, and cut the quotation."""

from __future__ import annotations

import re

REDACTED = "[redacted]"
# A shorter value is a word such as "none" and no secret; redacting it would spoil the text.
_MIN_SECRET_LENGTH = 6
# The beginning of a key is redacted too when it has at least this many characters.
_MIN_PREFIX_LENGTH = 8
_MAX_KEY_LENGTH = 4_000


def redact(text: str, *secrets: str | None) -> str:
    """Redact the secrets, and the beginning of a secret that a truncated text may hold.

    Pass all secrets in one call: keys of one provider begin alike, and after the beginning of one key is redacted, the
    rest of another key would no longer be recognized.
    """
    keys = [secret for secret in secrets if secret is not None and len(secret) >= _MIN_SECRET_LENGTH]
    begun = [key for key in keys if key[:_MIN_PREFIX_LENGTH] in text]
    parts = {key[:length] for key in begun for length in range(min(_MIN_PREFIX_LENGTH, len(key)), len(key) + 1)}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, REDACTED)
    return text


# Keys of known providers by their prefix, and the token after "Bearer". Servers mask some of them with stars.
_KEY_PATTERN = (
    r"\b(?:sk|sess|pk|rk)-[\w*.-]{3,}"
    r"|\b(?:sk|gsk|xai|key|or|pk)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{10,}|\bAQ\.[\w-]{10,}|\bya29\.[\w.-]{10,}"
    r"|(?i:\bbearer)\s+[\w*.~+/=-]{6,}"
)


def redact_key_patterns(text: str, limit: int) -> str:
    """Redact everything that looks like a key, and truncate the text to `limit` characters."""
    # Truncate after redaction: a truncated key does not match the pattern.
    shown = re.sub(_KEY_PATTERN, REDACTED, text[: limit + _MAX_KEY_LENGTH])
    return shown if len(shown) <= limit and len(text) <= limit + _MAX_KEY_LENGTH else f"{shown[: limit - 3]}..."
