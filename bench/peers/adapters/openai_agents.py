"""openai-agents: Runner.run_streamed over Chat Completions, tracing off."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from bench.peers import jobs
from openai import AsyncOpenAI

set_tracing_disabled(True)
PROTOCOLS = ("chat",)


def connect(protocol, base_url):
    return AsyncOpenAI(base_url=base_url + "/v1", api_key="x")


def make_agent(client, model):
    return Agent(
        name="bench",
        instructions=jobs.SYSTEM,
        model=OpenAIChatCompletionsModel(model=model, openai_client=client),
        tools=[function_tool(jobs.add), function_tool(jobs.note)],
    )


async def run(agent, prompt, on_text):
    result = Runner.run_streamed(agent, prompt, max_turns=10_000)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            on_text(event.data.delta)
    return result.final_output
