"""What a reader of the stream sees of the tool calls when nobody else listens: the same as with a subscriber."""

from __future__ import annotations

from steersman import Agent, AgentEvent, EventStream, ToolContext, tool
from steersman.loop.run import witness
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import MessageEnd, MessageStart


@tool
async def count(to: int) -> str:
    return " ".join(map(str, range(to)))


@tool
async def report(ctx: ToolContext) -> str:
    ctx.emit("reported", ctx.tool_call_id)
    return "Reported."


def start(events: list[str] | None = None) -> tuple[Agent, EventStream]:
    calls = (call("count", to=3), call("report"), call("nothing"), call("count", to="x"))
    agent = Agent(ScriptedModel(answer(*calls), answer(call("count", to=1)), "Done.").model, tools=[count, report])
    if events is not None:
        agent.subscribe(lambda event: events.append(describe(event)))
    return agent, agent.prompt("Go.")


def describe(event: AgentEvent) -> str:
    if isinstance(event, MessageStart | MessageEnd):
        return f"{event.seq} {event.type} {event.message.role} {event.message.text}"
    return f"{event.seq} {event.type}"


async def test_a_reader_alone_gets_the_same_events_as_one_beside_a_subscriber() -> None:
    witness.set(None)  # the judge of all tests wants every event, one by one
    heard: list[str] = []
    _, beside = start(heard)
    _, alone = start()
    read = [describe(event) async for event in alone]
    assert read == [describe(event) async for event in beside]
    assert read == heard
    assert [line.split()[0] for line in read] == [str(number) for number in range(len(read))]


async def test_the_results_of_an_answer_are_in_the_log_when_a_reader_alone_gets_them() -> None:
    witness.set(None)  # as above
    agent, stream = start()
    async for event in stream:
        if isinstance(event, MessageEnd) and event.message.role == "tool_result":
            assert event.message in agent.messages
    assert [message.role for message in agent.messages] == [
        "user", "assistant", *["tool_result"] * 4, "assistant", "tool_result", "assistant"
    ]  # fmt: skip
