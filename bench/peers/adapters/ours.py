"""Steersman by its documented API."""

from bench.peers import jobs

from steersman import Agent, ExecutionLimits

PROTOCOLS = ("chat", "messages", "responses", "gemini")
PROVIDERS = {
    "chat": ("openai-chat", "/v1"),
    "messages": ("anthropic", "/v1"),
    "responses": ("openai", "/v1"),
    "gemini": ("google", "/v1beta"),
}


def connect(protocol, base_url):
    provider, version = PROVIDERS[protocol]
    return provider, base_url + version


def make_agent(shared, model):
    provider, url = shared
    return Agent(
        f"{provider}:{model}",
        base_url=url,
        api_key="none",
        tools=[jobs.add, jobs.note],
        system_prompt=jobs.SYSTEM,
        limits=ExecutionLimits(max_turns=None, max_total_tokens=None, max_duration=None),
    )


async def run(agent, prompt, on_text):
    stream = agent.prompt(prompt)
    async for event in stream:
        if event.type == "message_update" and event.delta.type == "text_delta":
            on_text(event.delta.delta)
    return (await stream).text
