"""pydantic-ai: Agent.run_stream_events."""

from bench.peers import jobs
from pydantic_ai import Agent, AgentRunResultEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.usage import UsageLimits

PROTOCOLS = ("chat", "messages")


def connect(protocol, base_url):
    if protocol == "chat":
        from pydantic_ai.models.openai import OpenAIChatModel as Model
        from pydantic_ai.providers.openai import OpenAIProvider as Provider
    else:
        from pydantic_ai.models.anthropic import AnthropicModel as Model
        from pydantic_ai.providers.anthropic import AnthropicProvider as Provider
    return Model, Provider(base_url=base_url + ("/v1" if protocol == "chat" else ""), api_key="x")


def make_agent(shared, model):
    kind, provider = shared
    return Agent(kind(model, provider=provider), instructions=jobs.SYSTEM, tools=[jobs.add, jobs.note])


async def run(agent, prompt, on_text):
    async with agent.run_stream_events(prompt, usage_limits=UsageLimits(request_limit=None)) as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                if isinstance(event.delta, TextPartDelta):
                    on_text(event.delta.content_delta)
            elif isinstance(event, PartStartEvent):
                if isinstance(event.part, TextPart) and event.part.content:
                    on_text(event.part.content)
            elif isinstance(event, AgentRunResultEvent):
                return event.result.output
    raise RuntimeError("The run had no result.")
