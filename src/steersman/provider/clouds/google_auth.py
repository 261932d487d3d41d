"""Access tokens of Google Cloud from the application default credentials, with the package google-auth.

    pip install 'steersman[vertex]'

google-auth reads files, may run a program and asks the network, so it runs in a thread. A token is kept and renewed
shortly before it ends; google-auth says when that is.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from weakref import WeakKeyDictionary

from steersman.types.errors import AuthenticationError
from steersman.types.secrets import redact_key_patterns

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SHOWN = 300


class MissingCredentialsError(AuthenticationError):
    """There are no application default credentials, or google-auth is not installed."""


class GoogleCredentials:
    """The application default credentials; loaded when they are first needed."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._project: str | None = None
        self._thread_lock = threading.Lock()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def get_token(self) -> tuple[str, str | None]:
        """A valid token, and the project of the credentials if they name one.

        Raises `MissingCredentialsError` if there are none, `AuthenticationError` if they cannot be renewed.
        """
        if not self._is_valid():
            # One thread per event loop: a hundred agents that wait for the same token wait here.
            lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            async with lock:
                if not self._is_valid():
                    await asyncio.to_thread(self._renew)
        return str(self._credentials.token), self._project

    def _is_valid(self) -> bool:
        return self._credentials is not None and bool(self._credentials.valid)

    def _renew(self) -> None:
        with self._thread_lock:
            if self._is_valid():
                return
            try:
                import google.auth as google_auth
                from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
                from google.auth.transport.requests import Request
            except ImportError as error:
                raise MissingCredentialsError(
                    "Application default credentials of Google Cloud need the package google-auth: "
                    "pip install 'steersman[vertex]', or give api_key=..."
                ) from error
            transport: Any = Request()
            try:
                if self._credentials is None:
                    self._credentials, self._project = _load(google_auth, transport)
                self._credentials.refresh(transport)
            except DefaultCredentialsError as error:
                raise MissingCredentialsError(
                    f"No application default credentials of Google Cloud: {_describe(error)} Run "
                    "'gcloud auth application-default login', set GOOGLE_APPLICATION_CREDENTIALS, or give api_key=..."
                ) from None
            except (GoogleAuthError, OSError, ValueError) as error:
                raise AuthenticationError(
                    f"The application default credentials of Google Cloud gave no token: {_describe(error)} Run "
                    "'gcloud auth application-default login', or check GOOGLE_APPLICATION_CREDENTIALS."
                ) from None


def _load(google_auth: Any, transport: Any) -> tuple[Any, str | None]:
    credentials, project = google_auth.default(scopes=[_SCOPE], request=transport)
    return credentials, project


def _describe(error: Exception) -> str:
    """The error in one line; only its first argument, because the others hold the whole response of the server."""
    text = " ".join(str(error.args[0] if error.args else "").split())
    return f"{type(error).__name__}: {redact_key_patterns(text, _SHOWN).rstrip('.')}."


CREDENTIALS = GoogleCredentials()
"""Those of this process."""
