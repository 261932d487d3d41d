"""What goes wrong around supervised sessions, apart from the session itself."""

from __future__ import annotations

from steersman.types.errors import SteersmanError


class DurableError(SteersmanError):
    """Temporal cannot be reached or refused it, or the supervision of a session ended with an error."""
