"""Signatures of AWS: those of botocore, for many requests."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth  # pyright: ignore[reportMissingTypeStubs]
from botocore.awsrequest import AWSRequest  # pyright: ignore[reportMissingTypeStubs]
from botocore.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import example, given
from hypothesis import strategies as st

from steersman.provider.clouds.sigv4 import AwsCredentials, sign_request

LETTERS = st.text("ABCXYZabcxyz0189", min_size=1, max_size=24)
# A segment of dots alone is no model: it names the folder of the address, and clients leave it out.
IDS = st.text("abz09.-_:/ ~%+é", min_size=1, max_size=40).filter(lambda id: id not in (".", ".."))
HOSTS = st.sampled_from(
    ["https://bedrock-runtime.us-east-1.amazonaws.com", "http://127.0.0.1:8080", "https://vpce-1.example:443"]
)
TIMES = st.datetimes(datetime(2024, 1, 1), datetime(2040, 1, 1))
QUERIES = st.dictionaries(st.text("ab c&é", min_size=1, max_size=4), st.text("xy /=é~", max_size=4), max_size=3)


def sign_with_botocore(request: Any, credentials: Any, region: str, now: datetime) -> None:
    """Sign as botocore's `add_auth` does, but at a time that is given."""
    signer: Any = SigV4Auth(credentials, "bedrock", region)
    request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))


@given(
    IDS, HOSTS, QUERIES, st.binary(max_size=60), LETTERS, LETTERS, st.none() | LETTERS,
    st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1"]), TIMES,
)  # fmt: skip
@example(
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "https://bedrock-runtime.us-east-1.amazonaws.com",
    {}, b"{}", "AKIA", "secret", "token", "us-east-1", datetime(2026, 5, 17, 8, 9, 10),
)  # fmt: skip
@example(
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-v1:0",
    "https://bedrock-runtime.us-east-1.amazonaws.com",
    {}, b"", "AKIA", "secret", None, "us-east-1", datetime(2026, 5, 17),
)  # fmt: skip
def test_a_signature_is_the_one_of_botocore(
    id: str, host: str, query: dict[str, str], body: bytes, access: str, secret: str, token: str | None, region: str,
    now: datetime,
) -> None:  # fmt: skip
    """Ids with colons and slashes, ports, session tokens, any body and time."""
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    url = f"{host}/model/{quote(id, safe='')}/converse-stream{'?' if pairs else ''}{pairs}"
    credentials = AwsCredentials(access, secret, token)
    ours = sign_request(credentials, url, body, region=region, service="bedrock", now=now.replace(tzinfo=UTC))
    request: Any = AWSRequest("POST", url, data=body, headers={"X-Amz-Content-SHA256": sha256(body).hexdigest()})
    sign_with_botocore(request, Credentials(access, secret, token), region, now)
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert ours == theirs


def test_credentials_show_no_secret() -> None:
    shown = repr(AwsCredentials("AKIA", "the-secret", "the-token"))
    assert "the-secret" not in shown
    assert "the-token" not in shown
