"""A server that speaks another protocol, or none: the error names the provider, what was tried, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import msgspec
import pytest
from tests.provider.wires.protocols import READINGS, SERVERS, played
from tests.provider.wires.reading import Reading, chunks
from tests.rows import each_row

from steersman import Agent, Retry, RunResult
from steersman.provider.http.client import aclose_http
from steersman.provider.wires.dialects import detect_protocols, suggest_protocol
from steersman.testing.servers import Delivery, Reply, StrictServer
from steersman.testing.servers.base import sse
from steersman.types.errors import IncompleteStreamError, ProtocolError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model

CANARY = "canary-0123456789"
AT_ONCE = Retry(max_attempts=2, base_delay=0)


@dataclass(frozen=True)
class Spoken:
    """A protocol: what to ask for, its strict server, what it is called, and a stream of it."""

    provider: str
    server: type[StrictServer]
    name: str
    reading: Reading
    stream: bytes


NAMES = {
    "anthropic": "Anthropic Messages",
    "google": "Gemini",
    "openai": "Chat Completions",
    "responses": "OpenAI Responses",
}
ALL = [
    Spoken(server.provider, server, NAMES[key], READINGS[key], played(server(), alt="sse"))
    for key, server in SERVERS.items()
    if key in NAMES  # the frames of Bedrock are no server-sent events, and no other protocol's
]
PAIRS = [pytest.param(*pair, id=f"{pair[0].provider} meets {pair[1].provider}") for pair in permutations(ALL, 2)]
EACH = [pytest.param(one, id=one.provider) for one in ALL]


async def asked(own: Spoken, server: StrictServer) -> RunResult:
    """A whole run against a server, by a key that must not be seen again."""
    model = Model(own.provider, "some-model", base_url=server.url, api_key=CANARY)
    result = await Agent(model, retry=AT_ONCE).run("Hi")
    await aclose_http()
    assert result.end_reason == "error"
    assert own.provider in result.detail
    assert f"http://127.0.0.1:{server.url.split(':')[2].partition('/')[0]}{server.raw[0].path}" in result.detail
    assert "base_url" in result.detail
    assert CANARY not in repr(result)
    return result


def kind_of(result: RunResult) -> str | None:
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    return last.error_kind


@pytest.mark.real_time
@each_row(("own", "other"), PAIRS)
async def test_a_strict_server_of_another_protocol_is_recognised_by_its_error(own: Spoken, other: Spoken) -> None:
    async with other.server("Never.", key=None) as server:
        result = await asked(own, server)
        assert (kind_of(result), len(server.raw), server.left) == ("invalid_request", 1, 1)
    assert f"'{other.provider}:some-model'" in result.detail
    assert other.name in result.detail


@pytest.mark.real_time
@each_row("chunk", [None, 1])
@each_row(("own", "other"), PAIRS)
async def test_a_stream_of_another_protocol_is_recognised_and_not_asked_for_again(
    own: Spoken, other: Spoken, chunk: int | None
) -> None:
    async with own.server(Delivery(other.stream, chunk=chunk), repeat_last=True, key=None) as server:
        result = await asked(own, server)
        assert (kind_of(result), len(server.raw)) == ("protocol", 1)
    assert f"sent a stream that is not {own.name}: " in result.detail
    assert f"It looks like {other.name}: use '{other.provider}:some-model' with base_url=..." in result.detail


@pytest.mark.real_time
@each_row(("own", "other"), PAIRS)
async def test_a_whole_answer_of_another_protocol_is_recognised(own: Spoken, other: Spoken) -> None:
    wholes: dict[str, Any] = {
        "anthropic": {"id": "msg_1", "type": "message", "role": "assistant", "content": []},
        "google": {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]},
        "openai-chat": {"id": "c", "object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]},
        "openai": {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": []},
    }
    async with own.server(Reply(200, wholes[other.provider]), repeat_last=True, key=None) as server:
        result = await asked(own, server)
        assert (kind_of(result), len(server.raw)) == ("protocol", 1)
    assert f"It looks like {other.name}: use '{other.provider}:some-model'" in result.detail


HTML = {"content-type": "text/html"}
STREAM = {"content-type": "text/event-stream"}
STRANGE = sse({"hello": 1}) + sse({"type": "greeting"}, "greeting") + sse("{}")
PLAIN: dict[str, tuple[Any, str, int]] = {
    "a page": (Reply(200, b"<html>Welcome</html>", HTML), "protocol", 1),
    "a page as a stream": (Reply(200, b"<html>Welcome</html>", STREAM), "protocol", 1),
    "a page for what is not there": (Reply(404, b"<html>Not found</html>", HTML), "invalid_request", 1),
    "a page of a proxy that forbids": (Reply(403, b"<html>Access denied</html>", HTML), "authentication", 1),
    "a page of a proxy that wants a password": (Reply(407, b"<html>Sign in</html>", HTML), "invalid_request", 1),
    "a page of a gateway": (Reply(502, b"<html>Bad gateway</html>", HTML), "overloaded", 2),
    "a page for a request that was not encrypted": (Reply(400, b"<html>Use HTTPS</html>", HTML), "invalid_request", 1),
    "JSON for what is not there": (Reply(404, {"detail": "Not Found"}), "invalid_request", 1),
    "what takes no POST": (Reply(405, {"detail": "Method Not Allowed"}), "invalid_request", 1),
    "other JSON": (Reply(200, {"hello": 1}), "protocol", 1),
    "a text": (Reply(200, "It works!"), "protocol", 1),
    "nothing": (Reply(200, b""), "protocol", 1),
    "an empty stream": (Reply(200, b"", STREAM), "incomplete", 2),
    "a stream of nothing known": (Delivery(STRANGE), "incomplete", 2),
    "a stream of texts": (Delivery(b"data: hello\n\n"), "protocol", 1),
}


@pytest.mark.real_time
@each_row("case", PLAIN)
@each_row("own", EACH)
async def test_a_server_of_no_protocol_is_named_with_what_to_check(own: Spoken, case: str) -> None:
    said, kind, times = PLAIN[case]
    async with own.server(said, repeat_last=True, key=None) as server:
        result = await asked(own, server)
        assert (kind_of(result), len(server.raw)) == (kind, times)
    assert "It looks like" not in result.detail
    assert "Check the key" not in result.detail
    if isinstance(said, Reply) and isinstance(said.body, bytes) and said.body:
        assert repr(said.body.decode()) in result.detail


PING = sse({"type": "ping"}, "ping") + b": still here\n\n"
FILTER = sse({"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": []})


@pytest.mark.parametrize("own", EACH)
def test_an_answer_that_was_cut_before_it_said_anything_may_be_asked_for_again(own: Spoken) -> None:
    """failures.md B9, B19: pings, and the first chunk that Azure sends."""
    known = {"anthropic": PING, "openai-chat": FILTER}.get(own.provider, b": still here\n\n")
    for begun in (b"", PING, known):
        with pytest.raises(IncompleteStreamError, match="ended before") as caught:
            own.reading.read(begun)
    assert "The server sent something that is not" not in str(caught.value)


@each_row(("own", "other"), PAIRS)
def test_an_answer_that_began_is_not_taken_for_another_because_of_what_stands_beside_it(
    own: Spoken, other: Spoken
) -> None:
    """A gateway may add events of its own."""
    begun = own.stream[: len(own.stream) // 2]
    begun = begun[: begun.rindex(b"data:")]
    with pytest.raises(IncompleteStreamError):
        own.reading.read(other.stream[: other.stream.index(b"data:", 200)] + begun)


@each_row(("own", "other"), PAIRS)
def test_a_stream_of_another_protocol_is_no_answer_however_it_is_cut(own: Spoken, other: Spoken) -> None:
    for pieces in ([other.stream], chunks(other.stream, 1), [PING, other.stream]):
        with pytest.raises(ProtocolError, match=f"It looks like {other.name}"):
            own.reading.read(pieces)


ERRORS: list[tuple[Any, tuple[str, ...]]] = [
    ({"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}, ("anthropic",)),
    ([{"error": {"code": 404, "message": "No.", "status": "NOT_FOUND"}}], ("google",)),
    ({"error": {"message": "Invalid URL", "type": "x", "param": None, "code": None}}, ("openai-chat", "openai")),
    ({"error": {"message": "No.", "type": "x", "param": None, "code": "model_not_found"}}, ()),
    ({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, ()),
    ({"error": "no"}, ()),
    ({"detail": "Not Found"}, ()),
    ({"type": "ping"}, ()),
    ({"type": 5, "choices": {}}, ()),
    ([], ()),
    ("choices", ()),
    (None, ()),
]


@each_row(("value", "spoken"), ERRORS)
def test_only_the_protocols_that_may_have_sent_it_are_named(value: Any, spoken: tuple[str, ...]) -> None:
    assert detect_protocols(msgspec.json.encode(value)) == spoken


def test_a_protocol_of_the_users_own_may_look_like_any() -> None:
    assert suggest_protocol(Model("lab", "rat"), "lab", [b'{"choices": []}']) == ""
    assert suggest_protocol(Model("lab", "rat"), "google", [b'{"choices": []}']) == (
        "It looks like Chat Completions: use 'openai-chat:rat' with base_url=..."
    )


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b"\xff", b"[" * 100_000])
def test_what_is_no_json_names_no_protocol(text: bytes) -> None:
    assert detect_protocols(text) == ()
