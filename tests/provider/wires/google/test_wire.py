"""Gemini over real sockets, through `Agent`, judged by the strict server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.provider.wires.google.streams import call as part_call
from tests.provider.wires.google.streams import chunk, stream
from tests.provider.wires.google.streams import text as part_text
from tests.rows import each_row

from steersman import Agent, ContextConfig, Retry, tool
from steersman.testing import (
    answer,
    call,
    cut,
    error,
    raises,
    stall,
    text,
    thinking,
)
from steersman.testing.servers import Delivery, GoogleServer, Received, Reply
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent
from steersman.types.errors import ErrorInfo
from steersman.types.events import AgentEnd, MessageUpdate, RetryScheduled
from steersman.types.messages import AssistantMessage, UserMessage
from steersman.types.stream import Reset
from steersman.types.usage import Usage
from steersman.types.wire import decode, encode

pytestmark = pytest.mark.real_time

AT_ONCE = Retry(base_delay=0.0, jitter=0.0)
PICTURE = "iVBORw0KGgo="


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look() -> list[ImageContent | TextContent]:
    """Look at the screen."""
    return [TextContent("The screen."), ImageContent(PICTURE)]


def agent_for(server: GoogleServer, id: str = "gemini-3-pro-preview", **settings: Any) -> Agent:
    given: dict[str, Any] = {"tools": [add, look], "retry": AT_ONCE, **settings}
    return Agent(server.model(id), **given)


@pytest.mark.parametrize("id", ["gemini-3-pro-preview", "gemini-2.5-flash"])
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
async def test_a_conversation_with_tools_thinking_and_a_picture_is_taken(id: str, ids: bool) -> None:
    """failures.md A9, A13, D5 and D9: parallel and sequential calls, signatures on parts of every kind."""
    first = answer(
        thinking("Hm.", signature="QUJD"), "Look.", call("add", a=1, b=2), call("look"), usage=Usage(input=9, output=3)
    )
    signed = msgspec.structs.replace(call("add", a=3, b=4), signature="Zm9v")
    script = [first, answer(signed), answer(thinking("So."), "It is 7.", text("", signature="c2ln")), "Bye."]
    async with GoogleServer(*script, ids=ids) as server:
        agent = agent_for(server, id, thinking_level="low", system_prompt="Be brief.")
        picture = UserMessage([TextContent("What is this?"), ImageContent(PICTURE)])
        result = await agent.run(picture)
        again = await agent.run("Thanks.")
    assert (result.end_reason, result.text, again.end_reason, again.text) == ("done", "It is 7.", "done", "Bye.")
    assert len(server.requests) == 4
    contents = server.requests[-1]["contents"]
    if id == "gemini-2.5-flash":
        # The picture of the tool, behind the results.
        assert contents.pop(3) == {
            "role": "user",
            "parts": [{"inlineData": {"mimeType": "image/png", "data": PICTURE}}],
        }
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user", "model", "user"]
    assert [part.get("thoughtSignature") for part in contents[3]["parts"]] == ["Zm9v"]
    assert contents[5]["parts"][-1] == {"text": "", "thoughtSignature": "c2ln"}
    assert contents[0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PICTURE}}


async def test_steering_comes_after_the_results() -> None:
    """failures.md A6."""
    agents: list[Agent] = []

    @tool
    def slow() -> str:
        """Take a while."""
        agents[0].steer("Stop that.", mode="wait")
        return "done"

    async with GoogleServer(answer(call("slow"), call("add", a=1, b=2)), "Stopped.") as server:
        agents.append(agent_for(server, tools=[slow, add]))
        result = await agents[0].run("Go")
    assert (result.end_reason, result.text) == ("done", "Stopped.")
    kinds = [[next(iter(part)) for part in content["parts"]] for content in server.requests[1]["contents"]]
    assert kinds == [["text"], ["functionCall", "functionCall"], ["functionResponse", "functionResponse"], ["text"]]


async def test_requests_extend_each_other_byte_by_byte() -> None:
    """failures.md I11 and I20."""
    turns = [answer(f"Turn {number}.", call("add", a=number, b=1)) for number in range(6)]
    async with GoogleServer(*turns, "Done.") as server:
        assert (await agent_for(server).run("Go")).end_reason == "done"
    bodies = [received.body for received in server.raw]
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))


async def test_the_same_id_in_every_turn_is_told_apart() -> None:
    """failures.md A9."""
    again = answer(call("add", a=1, b=1, id="call_0"), call("add", a=2, b=2, id="call_0"))
    async with GoogleServer(again, again, "Done.") as server:
        result = await agent_for(server).run("Go")
    assert result.end_reason == "done"
    outputs = [
        part["functionResponse"]["response"]["output"]
        for content in server.requests[-1]["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    assert outputs == ["2", "4", "2", "4"]


async def test_odd_names_of_tools_and_parameters_make_the_round_trip() -> None:
    """failures.md C14."""
    got: list[dict[str, Any]] = []

    def keep(args: dict[str, Any], ctx: ToolContext) -> str:
        got.append(args)
        return "ok"

    odd = Tool(
        "my tool/größe",
        "Odd.",
        {"type": "object", "properties": {"user-id": {"type": "string"}}, "required": ["user-id"]},
        keep,
    )

    def calls(received: Received) -> Any:
        declared = received.json["tools"][0]["functionDeclarations"][0]
        (parameter,) = declared["parametersJsonSchema"]["properties"]
        return answer(call(declared["name"], {parameter: "u"}))

    async with GoogleServer(calls, "Done.") as server:
        result = await agent_for(server, tools=[odd]).run("Go")
    assert (result.end_reason, got) == ("done", [{"user-id": "u"}])
    assert [
        message.tool_calls[0].name
        for message in result.messages
        if isinstance(message, AssistantMessage) and message.tool_calls
    ] == ["my tool/größe"]


async def test_structured_output_is_asked_for_and_read() -> None:
    from dataclasses import dataclass

    @dataclass
    class City:
        name: str
        size: int | None = None

    async with GoogleServer('{"name": "Oslo"}') as server:
        result = await agent_for(server, tools=[], output_type=City).run("Which?")
    assert result.output == City("Oslo")
    assert server.requests[0]["generationConfig"]["responseMimeType"] == "application/json"


async def test_an_array_instead_of_a_stream_is_no_empty_success() -> None:
    """failures.md B10."""
    async with GoogleServer(Reply(200, [chunk(part_text("Hello"), finish="STOP")])) as server:
        result = await agent_for(server, retry=None).run("Hi")
    assert (result.end_reason, result.text) in (("done", "Hello"), ("error", ""))


SOON = [{"retryDelay": "0.001s"}]
FAULTS: list[tuple[str, Any, str]] = [
    ("bad gateway", Reply(502, "<html>no</html>", {"content-type": "text/html"}), "overloaded"),
    ("overloaded", error("overloaded"), "overloaded"),
    ("rate limit", error(ErrorInfo("rate_limit", "Slow down.", retry_after=0.0)), "rate_limit"),
    ("error inside a 200", Reply(200, {"error": {"code": 503, "message": "Overloaded."}}), "overloaded"),
    ("error in a list of one", Reply(429, [{"error": {"code": 429, "details": SOON}}]), "rate_limit"),
    ("error in the stream", error("overloaded", "Hello", after=2), "overloaded"),
    ("reset before the answer", raises(ConnectionResetError()), "network"),
    ("reset in the answer", raises(ConnectionResetError(), "Hello", after=2), "incomplete"),
    ("end in the answer", cut("Hello", after=2), "incomplete"),
    ("malformed call", answer("Hello", raw_stop_reason="MALFORMED_FUNCTION_CALL"), "incomplete"),
]  # fmt: skip


@each_row(("fault", "kind"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
async def test_a_passing_fault_is_retried_and_told(fault: Any, kind: str) -> None:
    """loop.md T7; failures.md B10, B11, B17, B18, E1 and E2: nothing of the failed attempt is left."""
    async with GoogleServer(fault, answer("Fine.", usage=Usage(input=2, output=2))) as server:
        events = [event async for event in agent_for(server).prompt("Hi")]
    notices = [event for event in events if isinstance(event, RetryScheduled)]
    assert [notice.error.kind for notice in notices] == [kind]
    last = events[-1]
    assert isinstance(last, AgentEnd)
    assert (last.end_reason, last.messages[-1].text) == ("done", "Fine.")
    resets = [event for event in events if isinstance(event, MessageUpdate) and isinstance(event.delta, Reset)]
    shown = [event for event in events if isinstance(event, MessageUpdate) and event.seq < notices[0].seq]
    assert len(resets) == bool(shown)


async def test_what_a_malformed_call_cost_is_counted() -> None:
    """loop.md T8."""
    malformed = answer(raw_stop_reason="MALFORMED_FUNCTION_CALL", usage=Usage(input=5, output=7))
    async with GoogleServer(malformed, answer("Fine.", usage=Usage(input=2, output=2))) as server:
        result = await agent_for(server).run("Hi")
    assert (result.end_reason, result.usage.total) == ("done", 16)


ONCE: list[tuple[str, Any, str]] = [
    ("bad request", Reply(400, {"error": {"code": 400, "message": "Invalid value."}}), "Invalid value."),
    ("not found", Reply(404, {"error": {"code": 404, "message": "models/x is not found"}}), "is not found"),
    ("a page", Reply(200, "<html>Sign in</html>", {"content-type": "text/html"}), "instead of a stream of events"),
    ("garbage in the stream", b"data: {oops\n\n", "does not match its protocol"),
    ("unknown reason", answer("x", raw_stop_reason="NEW_REASON"), "NEW_REASON"),
    ("refusal", answer("x", raw_stop_reason="SAFETY"), "SAFETY"),
    ("blocked prompt", stream({"promptFeedback": {"blockReason": "JAILBREAK"}}), "JAILBREAK"),
    ("refusal with a call", answer(call("add", a=1, b=2), raw_stop_reason="PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
]  # fmt: skip


@each_row(("fault", "words"), [case[1:] for case in ONCE], ids=[case[0] for case in ONCE])
async def test_a_lasting_fault_is_told_and_not_retried(fault: Any, words: str) -> None:
    """failures.md E5, D1, D2, A7: and the next prompt is taken."""
    async with GoogleServer(fault, "Fine.") as server:
        agent = agent_for(server)
        result = await agent.run("Hi")
        assert result.end_reason == "error"
        assert words in result.detail
        assert len(server.requests) == 1
        assert not any(message.role == "tool_result" for message in result.messages)
        assert (await agent.run("Again")).text == "Fine."


async def test_a_wrong_key_is_told_and_shown_nowhere() -> None:
    """failures.md L13."""
    key = "canary-0123456789"
    async with GoogleServer("never") as server:
        agent = Agent(server.model(api_key=key), retry=AT_ONCE)
        events = [event async for event in agent.prompt("Hi")]
    assert key not in repr(events) + repr(agent) + repr(agent.context) + repr(server.requests)
    assert key not in repr(server.model(api_key=key))
    last = events[-1]
    assert isinstance(last, AgentEnd)
    assert "API key not valid" in last.detail
    assert len(server.requests) == 1


async def test_a_prompt_too_long_is_compacted_and_asked_again() -> None:
    """failures.md E6."""
    words = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    too_long = Reply(400, {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}})
    async with GoogleServer(answer(call("look")), *["ok"] * 12, too_long, "Fine.") as server:
        agent = agent_for(server)
        for number in range(12):
            await agent.run(f"Question {number}: " + "x" * 4000)
        result = await agent.run("Last.")
    assert (result.end_reason, result.text) == ("done", "Fine.")
    assert len(server.raw[-1].body) < len(server.raw[-2].body)


CUT = answer(thinking("Grüße"), "Hello 🙂", call("add", a=1, b=2), deltas=2)


async def test_a_cut_stream_is_asked_again_and_the_partial_text_kept_in_the_end() -> None:
    """loop.md T7: with retries used up, the error keeps what had arrived."""
    broken = cut("Hello there", after=2)
    async with GoogleServer(broken, broken, broken, "Fine.") as server:
        agent = agent_for(server)
        result = await agent.run("Hi")
        assert (result.end_reason, len(server.requests)) == ("error", 3)
        assert result.text == "Hello"
        assert (await agent.run("Again")).text == "Fine."


class _Stepping(asyncio.SelectorEventLoop):
    """Acts once, before a given step of the loop."""

    act: Callable[[], object] | None = None
    steps = 0
    at: int | None = None

    def _run_once(self) -> None:
        if self.act is not None:
            self.steps += 1
            if self.steps == self.at:
                self.act()
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]  # the step of every asyncio loop


def _replies(received: Received) -> Any:
    """Two parallel calls, then an answer; whatever the conversation was interrupted with."""
    last = received.json["contents"][-1]["parts"][-1]
    if last.get("text") == "Again":
        return "Fine."
    if "functionResponse" in last:
        return Delivery(answer(thinking("So."), "It is 3.", deltas=3), chunk=100, pace=0.001)
    first = msgspec.structs.replace(call("add", a=1, b=2), signature="c2ln")
    return Delivery(answer(thinking("Hm."), "Look.", first, call("add", a=3, b=4), deltas=2), chunk=100, pace=0.001)


def _interrupted(at: int | None) -> int:
    """Abort a run before a step of the event loop; how many steps there were."""
    loops: list[_Stepping] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Stepping)
        async with GoogleServer(_replies, repeat_last=True) as server:
            agent = agent_for(server)
            loop.at, loop.act = at, agent.abort
            result = await agent.run("Hi")
            loop.act = None
            assert result.end_reason in ("done", "aborted")
            assert at is not None or result.text == "It is 3."
            again = await agent.run("Again")
            assert (again.end_reason, again.text, again.detail) == ("done", "Fine.", "")
            for received in server.raw:
                assert await received.wait_for_outcome() in ("answered", "left")

    def made() -> _Stepping:
        loops.append(_Stepping())
        return loops[-1]

    with asyncio.Runner(loop_factory=made) as runner:
        runner.run(play())
    return loops[0].steps


def test_a_cancel_at_any_step_closes_the_connection_and_leaves_a_transcript_that_is_taken() -> None:
    """loop.md T12, section 6; failures.md A1 and D8."""
    steps = _interrupted(None)
    assert steps > 10
    for at in range(1, steps + 1):
        try:
            _interrupted(at)
        except BaseException as failure:
            failure.add_note(f"interrupted before step {at} of {steps}")
            raise


@pytest.mark.parametrize("after", [1, 3])
async def test_an_abort_of_a_silent_stream_closes_its_connection(after: int) -> None:
    """failures.md B14 and F1."""
    async with GoogleServer(stall(thinking("Hm."), "Hello there", after=after), "Fine.") as server:
        agent = agent_for(server)
        async for event in agent.prompt("Hi"):
            if event.type == "message_update":
                agent.abort()
        assert await server.raw[0].wait_for_outcome() == "left"
        assert (await agent.run("Again")).text == "Fine."
    assert [received.connection for received in server.raw] == [1, 2]


async def test_an_abort_before_the_first_byte_closes_the_connection() -> None:
    """failures.md B14 and F1."""
    loop = asyncio.get_running_loop()
    agents: list[Agent] = []

    def silent(_: Received) -> Any:
        loop.call_soon_threadsafe(agents[0].abort)
        return stall("Hello", after=0)

    async with GoogleServer(silent, "Fine.") as server:
        agents.append(agent_for(server))
        assert (await agents[0].run("Hi")).end_reason == "aborted"
        assert await server.raw[0].wait_for_outcome() == "left"
        assert (await agents[0].run("Again")).text == "Fine."
    assert [received.connection for received in server.raw] == [1, 2]


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    async with GoogleServer("One.", "Two.", "Three.") as server:
        agent = agent_for(server)
        for _ in range(3):
            await agent.run("Hi")
    assert server.connections == 1


async def test_raw_chunks_of_older_models_are_read_to_their_end() -> None:
    """A finish reason with every chunk, parallel calls in chunks of their own, and the usage last."""
    written = stream(
        chunk(part_text("Let me."), finish="STOP"),
        chunk(part_call("add", {"a": 1, "b": 2}), finish="STOP"),
        chunk(part_call("add", {"a": 3, "b": 4}), finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2}},
    )
    async with GoogleServer(Delivery(written, chunk=7), "7") as server:
        result = await agent_for(server, "gemini-2.5-flash").run("Hi")
    assert (result.end_reason, result.usage.total) == ("done", 6)
    assert [len(content["parts"]) for content in server.requests[1]["contents"]] == [1, 3, 2]


async def test_signatures_survive_a_resume_and_a_compaction() -> None:
    """failures.md D9: written to disk and read back, and with older turns summed up."""
    calls = [msgspec.structs.replace(call("add", a=number, b=1), signature=f"c2ln{number:04d}") for number in range(9)]
    script = [*(answer(thinking("Hm."), one) for one in calls), answer("Done.", text("", signature="Zm9v"))]
    async with GoogleServer(*script, "Resumed.", "Compacted.") as server:
        agent = agent_for(server)
        assert (await agent.run("Go")).end_reason == "done"
        kept = [decode(encode(message)) for message in agent.messages]
        resumed = agent_for(server, messages=kept)
        assert (await resumed.run("Again")).text == "Resumed."
        small = ContextConfig(max_context_tokens=200, threshold=0.5, keep_recent=4)
        assert (await agent_for(server, messages=kept, context_config=small).run("Again")).text == "Compacted."
    sent = server.requests[-2]["contents"]
    assert sent[:-1] == [*server.requests[9]["contents"], sent[-2]]
    marks = [part["thoughtSignature"] for content in sent for part in content["parts"] if "thoughtSignature" in part]
    assert marks == [*(one.signature for one in calls), "Zm9v"]
    assert len(server.raw[-1].body) < len(server.raw[-2].body)
