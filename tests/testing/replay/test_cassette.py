"""A cassette: what a real server said once, said again without it, and no key in the file."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steersman import Agent, Retry, RunResult, tool
from steersman.testing import CassetteMismatch, EventCollector, ScriptedModel, answer, call, cassette, thinking
from steersman.testing.replay.cassette import Mode
from steersman.testing.servers import (
    AnthropicServer,
    Delivery,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Reply,
    StrictServer,
)
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamStart

KEY = "sk-canary-0123456789abcdef"
SERVERS: dict[str, tuple[type[StrictServer], str]] = {
    "anthropic": (AnthropicServer, "claude-sonnet-4-5"),
    "openai": (OpenAIResponsesServer, "gpt-5"),
    "openai-chat": (OpenAIChatServer, "deepseek-reasoner"),
    "google": (GoogleServer, "gemini-3-pro-preview"),
}
AT_ONCE = Retry(base_delay=0.0, jitter=0.0)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def lines(path: Path) -> list[dict[str, Any]]:
    """The file, read."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def ask(
    model: Model, path: Path, mode: Mode = "once", prompt: str = "What is 2 + 3?", **options: Any
) -> tuple[RunResult, EventCollector]:
    """One run with a cassette."""
    heard = EventCollector()
    with cassette(path, mode=mode) as tape:
        agent = Agent(model, tools=[add], stream_fn=tape, retry=AT_ONCE, system_prompt="Be short.", **options)
        agent.subscribe(heard)
        result = await agent.run(prompt)
    return result, heard


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", SERVERS)
async def test_a_real_run_is_recorded_once_and_played_without_a_server(protocol: str, tmp_path: Path) -> None:
    """The same events, delta by delta, and the same transcript; the server is gone."""
    path = tmp_path / "cassettes" / "sum.jsonl"
    kind, name = SERVERS[protocol]
    script = [answer(thinking("Hm.", signature="c2ln"), "Let me add.", call("add", a=2, b=3)), "It is 5."]
    with kind(*script, key=KEY) as server:
        model = server.model(name)
        first, told = await ask(model, path)
    again, retold = await ask(model, path)
    assert (first.text, again.text, len(server.requests)) == ("It is 5.", "It is 5.", 2)
    assert retold.types == told.types
    assert [getattr(event, "delta", None) for event in retold] == [getattr(event, "delta", None) for event in told]
    assert [message.content for message in retold.messages] == [message.content for message in told.messages]
    assert KEY not in path.read_text()


@pytest.mark.real_time
async def test_a_failure_is_recorded_too_and_a_key_that_a_server_quotes_is_not(tmp_path: Path) -> None:
    """failures.md L13. Here: the words of an error, a body, a header of the user's own, and the tool's output."""
    path = tmp_path / "faults.jsonl"
    faults = [
        Reply(529, f'{{"type":"error","error":{{"type":"overloaded_error","message":"busy, key {KEY}"}}}}'),
        Delivery("Hello there, and then some more words.", at=400, ending="reset"),
        answer(call("add", a=1, b=1)),
        f"Two. Your key is {KEY}.",
    ]
    with AnthropicServer(*faults, key=KEY) as server:
        model = server.model("claude-haiku-4-5")
        first, told = await ask(model, path, prompt=f"1 + 1? My key is {KEY}.")
    again, retold = await ask(model, path, "replay", prompt=f"1 + 1? My key is {KEY}.")
    assert (first.end_reason, again.end_reason, retold.shape) == ("done", "done", told.shape)
    assert told.types.count("retry_scheduled") == 2
    written = path.read_text()
    assert "[redacted]" in written
    assert [piece for piece in (KEY[:6], KEY[6:12], KEY[12:18], KEY[-6:]) if piece in written] == []


async def test_another_request_than_the_recorded_one_is_told_with_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel("Five.")
    await ask(script.model, path)
    with pytest.raises(CassetteMismatch) as caught:
        await ask(script.model, path, prompt="What is 2 + 4?")
    told = str(caught.value)
    assert '-          "text": "What is 2 + 3?",' in told
    assert '+          "text": "What is 2 + 4?",' in told
    assert "delete the file and record it again" in told
    assert script.asked == 1


async def test_the_agent_hears_of_a_difference_as_an_error_that_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel("Five.")
    await ask(script.model, path)
    tape = cassette(path, mode="replay")
    agent = Agent(script.model, stream_fn=tape)
    result = await agent.run("Something else.")
    assert (result.end_reason, "is not the recorded one" in result.detail) == ("error", True)
    with pytest.raises(CassetteMismatch, match="Request 1 is not"):
        tape.close()


async def test_requests_too_many_and_too_few_are_differences(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel("One.", "Two.", "Three.")
    with cassette(path) as tape:
        agent = Agent(script.model, stream_fn=tape)
        await agent.run("1?")
        await agent.run("2?")
    with pytest.raises(CassetteMismatch, match="1 of 2 recorded requests were not made"), cassette(path) as tape:
        await Agent(script.model, stream_fn=tape).run("1?")
    tape = cassette(path)
    agent = Agent(script.model, stream_fn=tape)
    for prompt in ("1?", "2?", "3?"):
        await agent.run(prompt)
    with pytest.raises(CassetteMismatch, match="Request 3 was made, and 2 are recorded"):
        tape.close()


async def test_requests_made_at_once_may_come_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel("One.", "Two.")
    with cassette(path) as tape:
        assert [(await Agent(script.model, stream_fn=tape).run(text)).text for text in ("1?", "2?")] == ["One.", "Two."]
    with cassette(path) as tape:
        assert [(await Agent(script.model, stream_fn=tape).run(text)).text for text in ("2?", "1?")] == ["Two.", "One."]


async def test_the_modes_say_when_the_model_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel("One.", "Two.")
    with pytest.raises(FileNotFoundError, match="no cassette"):
        cassette(path, mode="replay")
    assert (await ask(script.model, path, "once"))[0].text == "One."
    assert (await ask(script.model, path, "once"))[0].text == "One."
    assert (await ask(script.model, path, "record"))[0].text == "Two."
    assert (await ask(script.model, path, "replay"))[0].text == "Two."
    assert script.asked == 2
    with pytest.raises(ValueError, match="'once', 'replay' or 'record', got 'always'"):
        cassette(path, mode="always")  # pyright: ignore[reportArgumentType]  # the mistake under test


async def test_a_test_that_fails_leaves_no_cassette(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"

    async def fail() -> None:
        with cassette(path) as tape:
            await Agent(ScriptedModel("One.").model, stream_fn=tape).run("1?")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert os.listdir(tmp_path) == []


async def test_what_differs_each_time_can_be_scrubbed(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    script = ScriptedModel(answer(call("where")), "There.")

    places = iter(("/tmp/run-1/here", "/tmp/run-2/here"))

    @tool
    async def where() -> str:
        """Say where we are."""
        return next(places)

    for _ in range(2):
        with cassette(path, scrub=lambda text: text.replace("/tmp/run-1", "TMP").replace("/tmp/run-2", "TMP")) as tape:
            result = await Agent(script.model, tools=[where], stream_fn=tape).run("Where?")
        assert result.text == "There."
    assert script.asked == 2
    assert "/tmp/run" not in path.read_text()


async def test_unknown_events_are_kept_and_come_back(tmp_path: Path) -> None:
    """What a newer `StreamFn` yields is in the file as it came, and so is what it makes of the run."""
    path = tmp_path / "tape.jsonl"

    async def newer(model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[Any, None]:
        yield StreamStart()
        yield {"type": "scent_delta", "delta": "lavender"}
        yield Done(AssistantMessage(stop_reason="stop"))

    async def collected(tape: Any) -> list[Any]:
        model = Model("scripted", "newer")
        return [event async for event in tape(model, Request("", []), StreamOptions())]

    with cassette(path, newer) as tape:
        first = await collected(tape)
    with cassette(path) as tape:
        assert await collected(tape) == first
    assert [line["event"] for line in lines(path)[2:]] == [
        {"type": "start"},
        {"type": "scent_delta", "delta": "lavender"},
        {"type": "done", "message": msgspec.to_builtins(AssistantMessage(stop_reason="stop"))},
    ]


async def test_the_file_is_lines_of_json_with_a_format(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    await ask(ScriptedModel("Five.").model, path)
    head, request, *events = lines(path)
    assert head == {"cassette": "1.0"}
    assert (request["request"]["model"], len(request["digest"])) == ("scripted:script", 64)
    assert [event["event"]["type"] for event in events][::7] == ["start", "done"]
    path.write_text(path.read_text().replace('"1.0"', '"2.0"'))
    with pytest.raises(ValueError, match=r"has format 2\.0, and this version plays 1\.0"):
        cassette(path)
    path.write_text("not json\n")
    with pytest.raises(ValueError, match="Line 1 of the cassette"):
        cassette(path)
