"""Canaries in every place where text can be: none is recorded without `content`, and no key is recorded at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.telemetry.kit import Collected, attributes

from steersman import Agent, ExecutionLimits, Reject, Retry, Stop, ToolContext, ToolError, tool
from steersman.events import AgentEvent
from steersman.telemetry import uninstrument
from steersman.testing import ScriptedModel, answer, call, error, text, thinking
from steersman.types.content import ImageContent
from steersman.types.errors import ErrorInfo
from steersman.types.model import Model

KEY = "sk-secret-0123456789-abcdef"
OTHER_KEY = "other-secret-9876543210-fedcba"
HEADER_KEY = "header-secret-1122334455"
SPOKEN = (
    "prompt", "system", "answer", "thinking", "argument", "result", "failure", "filename", "steering", "follow",
    "subprompt", "subanswer",
)  # fmt: skip
KINDS = (*SPOKEN, "toolname", "update", "custom", "veto", "reject", "refusal", "approval")


def canary(kind: str) -> str:
    return f"canary-{kind}"


@tool
async def look(path: str, ctx: ToolContext) -> str:
    """Look at a file."""
    ctx.progress(canary("update"))
    ctx.emit("mine", {"text": canary("custom")})
    return f"{canary('result')} with {KEY}"


@tool
async def fall(path: str) -> str:
    """Fail."""
    raise ToolError(f"{canary('failure')} {path} {KEY}")


@tool(needs_approval=True)
async def ask(path: str) -> str:
    """Need approval."""
    return path


def list_agents(session: Path) -> Iterator[Agent]:
    """Agents whose runs, taken together, put a canary everywhere."""
    helper = Agent(ScriptedModel(answer(thinking(canary("thinking")), text(canary("subanswer")))).model)
    failed = ErrorInfo("overloaded", f"{canary('failure')} {KEY} {HEADER_KEY}", body=KEY)
    script = ScriptedModel(
        error(failed),
        answer(
            thinking(canary("thinking")),
            text(f"{canary('answer')} {KEY} {OTHER_KEY}"),
            call("look", path=f"/{canary('filename')}", more=canary("argument")),
            call("look", path=f"/{canary('filename')}"),
            call("fall", path=canary("filename")),
            call("ask", path=canary("approval")),
            call(canary("toolname"), words=canary("argument")),
            call("helper", prompt=canary("subprompt")),
        ),
        "Done.",
        error(ErrorInfo("refused", canary("refusal"))),
    )
    model = Model("scripted", "m", api_key=KEY, headers={"authorization": f"Bearer {HEADER_KEY}"})
    tools = [look, fall, ask, helper.as_tool("helper", "Helps.")]
    agent = Agent(
        model,
        stream_fn=script,
        tools=tools,
        system_prompt=canary("system"),
        retry=Retry(jitter=0),
        fallbacks=[Model("scripted", "n", api_key=OTHER_KEY)],
        session=session,
    )

    def steer(event: AgentEvent) -> None:
        if event.type == "tool_execution_start" and event.tool_name == "helper":
            agent.steer(canary("steering"), mode="wait")

    agent.subscribe(steer)
    agent.follow_up(canary("follow"))
    yield agent
    yield Agent(model, stream_fn=ScriptedModel("x"), before_turn=lambda *_: Stop(canary("veto")))
    yield Agent(model, stream_fn=ScriptedModel("x"), input_filters=[lambda _: Reject(canary("reject"))])
    yield Agent(model, stream_fn=ScriptedModel("x"), limits=ExecutionLimits(max_turns=0))


async def run_all(collected: Collected, session: Path, *, content: bool) -> bytes:
    for agent in list_agents(session):
        collected.record(agent, content=content)
        image = ImageContent("aW1hZ2U=" * 10)
        await agent.run([{"role": "user", "content": [{"type": "text", "text": f"{canary('prompt')} {KEY}"}, image]}])
        uninstrument(agent)
        agent.close()
    return collected.encode()


async def test_no_text_is_recorded_without_content(collected: Collected, tmp_path: Path) -> None:
    sent = await run_all(collected, tmp_path / "session.db", content=False)
    assert [kind for kind in KINDS if canary(kind).encode() in sent] == []
    assert b"canary" not in sent
    assert {span.name for span in collected.ended} == {
        "invoke_agent steersman",
        "invoke_agent helper",
        "chat m",
        "chat script",
        "execute_tool look",
        "execute_tool fall",
        "execute_tool ask",
        "execute_tool helper",
        "execute_tool (unknown)",
    }


@pytest.mark.parametrize("content", [False, True])
async def test_no_key_is_recorded_ever(content: bool, collected: Collected, tmp_path: Path) -> None:
    sent = await run_all(collected, tmp_path / "session.db", content=content)
    assert [key for key in (KEY, OTHER_KEY, HEADER_KEY) if key.encode() in sent] == []
    assert [key for key in (KEY, OTHER_KEY, HEADER_KEY) if key[:12].encode() in sent] == []


async def test_content_has_messages_arguments_results_and_errors(collected: Collected, tmp_path: Path) -> None:
    sent = await run_all(collected, tmp_path / "session.db", content=True)
    assert [kind for kind in SPOKEN if canary(kind).encode() not in sent] == []
    # An application's own events, and images, are no messages.
    assert [kind for kind in ("custom", "update") if canary(kind).encode() in sent] == []
    assert b"aW1hZ2U=" not in sent


async def test_content_is_written_as_the_conventions_say(collected: Collected) -> None:
    script = ScriptedModel(answer(thinking("Hm."), text("Let me see."), call("look", path="a")), "Done.")
    agent = Agent(script.model, tools=[look], system_prompt="Be brief.")
    collected.record(agent, content=True)
    await agent.run("Look.")
    run, chat, tool_span = (collected.find(name)[0] for name in ("invoke_agent", "chat", "execute_tool"))
    parts = (
        '[{"role":"assistant","parts":[{"type":"reasoning","content":"Hm."},{"type":"text","content":"Let me see."},'
        '{"type":"tool_call","id":"call_1","name":"look","arguments":{"path":"a"}}],"finish_reason":"tool_call"}]'
    )
    done = '[{"role":"assistant","parts":[{"type":"text","content":"Done."}],"finish_reason":"stop"}]'
    asked = '[{"role":"user","parts":[{"type":"text","content":"Look."}]}]'
    assert _texts(chat) == {
        "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": parts,
    }
    assert _texts(run) == {
        "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
        "gen_ai.input.messages": asked,
        "gen_ai.output.messages": done,
    }
    assert _texts(tool_span) == {
        "gen_ai.tool.call.arguments": '{"path":"a"}',
        "gen_ai.tool.call.result": f'"canary-result with {KEY}"',
    }


TEXTS = (
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)


def _texts(span: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes(span).items() if name in TEXTS}
