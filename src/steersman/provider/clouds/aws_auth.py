"""Credentials and region of AWS: from the environment, or from the chain of the package botocore.

    pip install 'steersman[bedrock]'

botocore reads files, may run a program and asks the network (profiles, SSO, roles, the metadata service), so it runs in
a thread. It renews temporary credentials itself before they end.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from steersman.provider.clouds.sigv4 import AwsCredentials
from steersman.types.errors import AuthenticationError
from steersman.types.secrets import redact_key_patterns

_SHOWN = 300


class MissingCredentialsError(AuthenticationError):
    """There are no credentials of AWS, or only botocore could find them and it is not installed."""


def find_environment_credentials() -> AwsCredentials | None:
    """The access key in the environment, if there is a whole one."""
    access, secret = _find_variable("AWS_ACCESS_KEY_ID"), _find_variable("AWS_SECRET_ACCESS_KEY")
    if access is None or secret is None:
        return None
    return AwsCredentials(access, secret, _find_variable("AWS_SESSION_TOKEN"))


def find_environment_region() -> str | None:
    """The region in the environment."""
    return _find_variable("AWS_REGION") or _find_variable("AWS_DEFAULT_REGION")


class AwsChain:
    """The credentials that botocore finds, per profile; each is looked up once."""

    def __init__(self) -> None:
        self._sessions: dict[str | None, Any] = {}
        self._lock = threading.Lock()

    async def get_credentials(self, profile: str | None) -> AwsCredentials:
        """Valid credentials; raises `MissingCredentialsError` if there are none."""
        return await asyncio.to_thread(self._load_credentials, profile)

    async def get_region(self, profile: str | None) -> str | None:
        """The region of a profile, or `None`; also where botocore is not installed."""
        return await asyncio.to_thread(self._load_region, profile)

    def _load_credentials(self, profile: str | None) -> AwsCredentials:
        try:
            from botocore.exceptions import BotoCoreError  # pyright: ignore[reportMissingTypeStubs]
        except ImportError as error:
            raise MissingCredentialsError(
                "No credentials of AWS. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or give api_key=...; profiles, SSO and roles need botocore: pip install 'steersman[bedrock]'"
            ) from error
        try:
            with self._lock:
                found: Any = self._open_session(profile).get_credentials()
                frozen: Any = None if found is None else found.get_frozen_credentials()
        except (BotoCoreError, OSError, ValueError) as error:
            text = f"The credentials of AWS could not be used: {_describe(error)} Check the profile, or sign in again."
            raise AuthenticationError(text) from None
        if frozen is None:
            raise MissingCredentialsError(
                "No credentials of AWS: botocore found none. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give api_key=..."
            )
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _load_region(self, profile: str | None) -> str | None:
        try:
            from botocore.exceptions import BotoCoreError  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            return None
        try:
            with self._lock:
                region: Any = self._open_session(profile).get_config_variable("region")
        except (BotoCoreError, OSError, ValueError):
            return None
        return region if isinstance(region, str) and region else None

    def _open_session(self, profile: str | None) -> Any:
        from botocore.session import Session  # pyright: ignore[reportMissingTypeStubs]

        if profile not in self._sessions:
            self._sessions[profile] = Session(profile=profile)
        return self._sessions[profile]


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {redact_key_patterns(text, _SHOWN).rstrip('.')}."


def _find_variable(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


CHAIN = AwsChain()
"""That of this process."""
