"""The example of the design documents, word for word; only the model is scripted."""

from __future__ import annotations

from typing import Any

from tests.loop.play import answering, said

from steersman import AgentContext, AgentLoopConfig, agent_loop, default_convert_to_llm, get_model
from steersman.testing import ScriptedModel, answer

EXAMPLE = """
stream = agent_loop(
    prompts=[{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    context=AgentContext(system_prompt="You are helpful", messages=[], tools=[]),
    config=AgentLoopConfig(model=model, convert_to_llm=default_convert_to_llm),
)

async for event in stream:
    print(event.type)

messages = await stream.result()
"""


async def run_example(names: dict[str, Any]) -> Any:
    """Execute the example as it stands, inside an async function that gives back its `messages`."""
    body = "\n".join(f"    {line}" for line in EXAMPLE.strip().splitlines())
    exec(f"async def example():\n{body}\n    return messages\n", names)
    return await names["example"]()


async def test_the_example_of_the_documents_runs_unchanged() -> None:
    script = ScriptedModel(answer("Hello, too.", deltas=2))
    told: list[str] = []

    def with_script(**arguments: Any) -> Any:
        return agent_loop(**arguments, stream_fn=script)

    messages = await run_example(
        {
            "agent_loop": with_script,
            "AgentContext": AgentContext,
            "AgentLoopConfig": AgentLoopConfig,
            "default_convert_to_llm": default_convert_to_llm,
            "model": get_model("openai-chat:qwen3", base_url="http://127.0.0.1:8000/v1", api_key="none"),
            "print": told.append,
        }
    )

    assert said(messages) == ["user: Hello", "assistant: Hello, too."]
    assert told == [
        "agent_start",
        "turn_start",
        *("message_start", "message_end"),
        *("message_start", *("message_update",) * 4, "message_end"),
        "turn_end",
        "agent_end",
    ]
    request, _ = script.requests[0]
    assert (request.system_prompt, said(request.messages)) == ("You are helpful", ["user: Hello"])
    assert script.models[0].name == "openai-chat:qwen3"


async def test_the_example_runs_on_the_models_own_provider_as_well() -> None:
    script = ScriptedModel("Hello, too.")
    messages = await run_example(
        {
            "agent_loop": agent_loop,
            "AgentContext": AgentContext,
            "AgentLoopConfig": AgentLoopConfig,
            "default_convert_to_llm": default_convert_to_llm,
            "model": script.model,
            "print": answering(None),
        }
    )

    assert said(messages) == ["user: Hello", "assistant: Hello, too."]
