"""Any model of the hub by its name there, `hf:org/repo/file.gguf@revision`, with the size and sha256 that the hub says.

`HF_ENDPOINT` names another hub. `HF_TOKEN` is sent to the hub itself and never to where it redirects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
from aiohttp import ClientError, ClientResponse, ClientTimeout

from steersman.provider.http.errors import has_credentials, redact_url
from steersman.provider.http.pool import get_session, is_local_url
from steersman.provider.local.weights.cache import LocalModel, Sources
from steersman.provider.local.weights.disk import SourceError, WeightsError, read_small_file, write_atomically
from steersman.provider.local.weights.hub import (
    describe_client_error,
    find_http_proxy,
    is_same_origin,
    resolve_redirect,
)

PREFIX = "hf:"
_ENDPOINT = "https://huggingface.co"
_FORM = "A model of the hub is named as hf:ORG/REPO/FILE.gguf, with @REVISION behind it if need be"
_REFERENCE = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>(?:[\w.+-]+/)*[\w.+-]+\.gguf)(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?",
    re.ASCII | re.IGNORECASE,
)
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REDIRECT = frozenset((301, 302, 303, 307, 308))
_HOPS = 5
_SECONDS = 15.0
_SUFFIX = ".hub"


@dataclass(frozen=True, slots=True)
class HubReference:
    """A file in a repository of the hub."""

    repo: str
    file: str
    revision: str = "main"

    @property
    def name(self) -> str:
        """The name of the model: that of its file."""
        return self.file.rpartition("/")[2][: -len(".gguf")]

    @property
    def text(self) -> str:
        """As a user writes it."""
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"{PREFIX}{self.repo}/{self.file}{revision}"

    def build_url(self, endpoint: str, revision: str) -> str:
        """The URL of the file at a revision."""
        return f"{endpoint}/{self.repo}/resolve/{quote(revision, safe='')}/{quote(self.file)}"


class _Record(msgspec.Struct, frozen=True):
    """What is known of a downloaded model; it lies beside the file."""

    reference: str
    url: str
    size: int
    sha256: str


def parse_reference(text: str) -> HubReference:
    """Read `hf:org/repo/file.gguf@revision`; `WeightsError` says what is wrong with it."""
    found = _REFERENCE.fullmatch(text)
    if found is None or {".", ".."} & set(text.removeprefix(PREFIX).partition("@")[0].split("/")):
        raise WeightsError(f"{text!r:.200} is not a model of the hub. {_FORM}.")
    if _PIECE.search(found["file"]):
        raise WeightsError(f"{found['file']!r} is one piece of a model in several files; one file is needed.")
    return HubReference(found["repo"], found["file"], found["revision"] or "main")


def find_endpoint() -> str:
    """The URL of the hub: `HF_ENDPOINT`, or the usual one."""
    endpoint = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or _ENDPOINT
    if has_credentials(endpoint) or (not endpoint.startswith("https://") and not is_local_url(endpoint)):
        raise WeightsError(f"HF_ENDPOINT is {redact_url(endpoint)!r}; it has to be an HTTPS URL without a password.")
    return endpoint


def find_token(url: str) -> str | None:
    """The token of the user for a URL of the hub; none for any other server."""
    token = os.environ.get("HF_TOKEN", "").strip()
    return token if token and is_same_origin(url, find_endpoint()) else None


async def find_hub_model(reference: HubReference) -> LocalModel:
    """Ask the hub for the size and the sha256 of a file, and pin the commit that it is in."""
    endpoint = find_endpoint()
    url = reference.build_url(endpoint, reference.revision)
    try:
        headers = await _request_headers(reference, url)
    except SourceError as error:
        raise WeightsError(f"The hub cannot be asked for {reference.text}: {error}.") from None
    size, digest = headers.get("X-Linked-Size", ""), headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
    if not _SIZE.fullmatch(size) or not _SHA256.fullmatch(digest):
        missing = "sha256" if _SIZE.fullmatch(size) else "size"
        raise WeightsError(f"The hub names no {missing} for {reference.text}, so the file could not be checked.")
    commit = headers.get("X-Repo-Commit", "")
    pinned = commit if re.fullmatch(r"[0-9a-f]{40}", commit) else reference.revision
    return _make_model(_Record(reference.text, reference.build_url(endpoint, pinned), int(size), digest))


async def _request_headers(reference: HubReference, url: str) -> Mapping[str, str]:
    """The headers for a file: those of the hub itself, not of the server that it redirects to."""
    start, token = url, find_token(url)
    for _ in range(_HOPS):
        response = await _head(url, token)
        if "X-Linked-Etag" in response.headers or response.status == 200:
            return response.headers
        if response.status not in _REDIRECT:
            raise WeightsError(_describe_refusal(reference, response))
        url = resolve_redirect(url, response.headers.get("Location", ""))
        if not is_same_origin(url, start):
            return response.headers
    raise WeightsError(f"{redact_url(start)} redirects too often.")


async def _head(url: str, token: str | None) -> ClientResponse:
    headers = {"accept-encoding": "identity", "user-agent": "steersman"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    try:
        client = await get_session()
        async with client.head(
            url,
            headers=headers,
            allow_redirects=False,
            proxy=find_http_proxy(url),
            timeout=ClientTimeout(total=_SECONDS),
        ) as response:
            return response
    except (OSError, ValueError, ClientError) as error:
        raise WeightsError(f"The hub at {redact_url(url)} cannot be reached: {describe_client_error(error)}.") from None


def _describe_refusal(reference: HubReference, response: ClientResponse) -> str:
    code = response.headers.get("X-Error-Code", "")
    if code == "EntryNotFound":
        return f"There is no file {reference.file!r} in {reference.repo} on the hub."
    if code == "RevisionNotFound":
        return f"There is no revision {reference.revision!r} of {reference.repo} on the hub."
    if response.status in (401, 403):
        asked = "HF_TOKEN was sent" if os.environ.get("HF_TOKEN") else "set HF_TOKEN if it is private or gated"
        return f"The hub does not give {reference.text}: there is no such repository, or it needs a sign-in ({asked})."
    if response.status == 404:
        return f"The hub does not have {reference.text}."
    return f"The hub answered {response.status} when it was asked for {reference.text}."


def save_record(folder: Path, model: LocalModel) -> None:
    """Save what a downloaded model is, so that it is found by its name from now on."""
    record = _Record(model.reference, model.sources.hub or "", model.size, model.sha256)
    write_atomically(folder / f"{model.file}{_SUFFIX}", msgspec.json.encode(record))


def list_hub_models(folder: Path) -> list[LocalModel]:
    """The models of the hub that were downloaded into a folder."""
    found: list[LocalModel] = []
    for path in sorted(folder.glob(f"*.gguf{_SUFFIX}")):
        data = read_small_file(path)
        try:
            model = None if data is None else _make_model(msgspec.json.decode(data, type=_Record))
        except (msgspec.MsgspecError, UnicodeError, WeightsError):
            continue  # a damaged record costs only the name
        if model is not None and f"{model.file}{_SUFFIX}" == path.name:
            found.append(model)
    return found


def find_downloaded(name: str, folder: Path) -> LocalModel | None:
    """The downloaded model of a name, which is that of its file or its whole reference."""
    models = list_hub_models(folder)
    same = [model for model in models if model.reference == name] or [model for model in models if model.name == name]
    if len(same) > 1:
        raise WeightsError(f"There are several models named {name!r}: {', '.join(model.reference for model in same)}.")
    return same[0] if same else None


def _make_model(record: _Record) -> LocalModel:
    reference = parse_reference(record.reference)
    if urlsplit(record.url).scheme not in ("http", "https") or not _SHA256.fullmatch(record.sha256):
        raise WeightsError(f"The record of {record.reference!r:.200} is damaged.")
    file = f"{reference.repo}/{reference.file}".replace("/", "--")
    return LocalModel(
        reference.name, file, "unknown", record.size, record.sha256, Sources(record.url), reference=reference.text
    )
