"""Models on Amazon Bedrock: `bedrock:MODEL`, with an API key of Bedrock or with credentials of AWS.

Settings of a model, beside those of the wire (`get_model(..., settings={...})`):
    region    such as "eu-central-1"; else that of the model's ARN, `AWS_REGION`, `AWS_DEFAULT_REGION`, or the profile's
    profile   a profile of the AWS configuration, for botocore
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from steersman.provider.clouds.aws_auth import (
    CHAIN,
    AwsChain,
    MissingCredentialsError,
    find_environment_credentials,
    find_environment_region,
)
from steersman.provider.clouds.sigv4 import AwsCredentials, sign_request
from steersman.provider.http.client import http_stream
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.provider.models.registry import find_key
from steersman.provider.streaming.batches import BatchedStreamFn, GeneratedBatches
from steersman.provider.streaming.output_tool import with_output_tool
from steersman.provider.wires.bedrock.schema import choose_output_mode
from steersman.provider.wires.bedrock.wire import WIRE, BedrockWire
from steersman.provider.wires.protocol import HttpRequest, Wire
from steersman.provider.wires.sampling import require_accepted
from steersman.types.errors import InvalidRequestError
from steersman.types.model import Model, Request, StreamFn, StreamOptions

_SERVICE = "bedrock"
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_ARN = re.compile(r"arn:aws[^:]*:(?:bedrock|sagemaker):([a-z0-9-]+):")
_HOST = re.compile(r"//bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com|api\.aws)")


def _read_clock() -> datetime:
    return datetime.now(UTC)


class SignedBedrockWire(BedrockWire):
    """Signs its requests with credentials; one wire is for one request."""

    def __init__(self, credentials: AwsCredentials, region: str, clock: Callable[[], datetime] = _read_clock) -> None:
        self._credentials = credentials
        self._region = region
        self._clock = clock

    @property
    def secrets(self) -> tuple[str, ...]:
        """What a server may quote and must not be shown."""
        return self._credentials.secrets

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode and sign the request."""
        call = super().request(model, request, options, None)
        signed = sign_request(
            self._credentials, call.url, call.body, region=self._region, service=_SERVICE, now=self._clock()
        )
        return HttpRequest(call.url, {**call.headers, **signed}, call.body, call.max_tokens)


def stream_bedrock(chain: AwsChain = CHAIN) -> StreamFn:
    """The `StreamFn` of the provider `bedrock`."""

    async def stream(model: Model, request: Request, options: StreamOptions, /) -> GeneratedBatches:
        require_accepted("bedrock", model, options)
        wire, model, options = await _sign_in(model, options, chain)
        async with aclosing(http_stream(wire).batches(model, request, options)) as batches:
            async for batch in batches:
                yield batch

    return with_output_tool(BatchedStreamFn(stream), choose_output_mode)


async def _sign_in(model: Model, options: StreamOptions, chain: AwsChain) -> tuple[Wire, Model, StreamOptions]:
    """A wire that signs in, the model with its URL, and the options with its key."""
    profile: Any = model.settings.get("profile")
    key = await find_key(model, options)
    region = await _find_region(model, profile, chain)
    model = replace(model, base_url=_find_url(model, region))
    if key is not None:
        return WIRE, model, replace(options, api_key=key)
    credentials = find_environment_credentials() if profile is None else None
    if credentials is None:
        try:
            credentials = await chain.get_credentials(profile)
        except MissingCredentialsError:
            # A server that is not Amazon's may need no credentials.
            if PRESETS["bedrock"].is_own_url(model.base_url):
                raise
            return WIRE, model, options
    return SignedBedrockWire(credentials, region or "us-east-1"), model, options


async def _find_region(model: Model, profile: str | None, chain: AwsChain) -> str | None:
    """The region, or `None` where only the URL is known."""
    own: Any = model.settings.get("region")
    found = _ARN.match(model.id) or _HOST.search(find_base_url("bedrock", model.base_url) or "")
    named = found[1] if found is not None and (model.base_url or model.id.startswith("arn:")) else None
    region = own or named or (find_environment_region() if profile is None else None)
    if region is None:
        region = await chain.get_region(profile) or find_environment_region()
    if region is not None and (not isinstance(region, str) or not _REGION.fullmatch(region)):
        text = f"The region of {model.name!r} is a name such as 'us-east-1', got {region!r}."
        raise InvalidRequestError(text, provider=model.provider)
    return region


def _find_url(model: Model, region: str | None) -> str:
    """The base URL: that of the model or the environment, else that of the region."""
    url = find_base_url("bedrock", model.base_url)
    if url and url != PRESETS["bedrock"].base_url:
        return url
    if region is None:
        text = f"No region for {model.name!r}. Set AWS_REGION, or give get_model settings={{'region': ...}}."
        raise InvalidRequestError(text, provider=model.provider)
    end = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{end}"
