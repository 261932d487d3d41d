"""What can go wrong on the way to a model's file: one source fails and the next is asked, or nothing is left to do."""

from __future__ import annotations

from steersman.types.errors import ProviderError


class WeightsError(ProviderError):
    """A model's file cannot be had; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, provider="local")


class SourceError(Exception):
    """One source did not give the file; the next one may."""
