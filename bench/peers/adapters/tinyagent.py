"""tiny-agent-os (tinyAgent): Agent.stream over its Rust provider binding."""

from bench.peers import jobs
from tinyagent import Agent, AgentOptions, AgentTool, AgentToolResult, TextContent
from tinyagent.alchemy_provider import OpenAICompatModel, stream_alchemy_openai_completions

PROTOCOLS = ("chat",)


def make_tool(function, name, description, schema):
    async def execute(tool_call_id, args, signal, on_update):
        return AgentToolResult(content=[TextContent(text=str(await function(**args)))])

    return AgentTool(name=name, label=name, description=description, parameters=schema, execute=execute)


def connect(protocol, base_url):
    return base_url + "/v1/chat/completions"


def make_agent(url, model):
    made = Agent(AgentOptions(stream_fn=stream_alchemy_openai_completions, session_id="s"))
    made.set_system_prompt(jobs.SYSTEM)
    made.set_model(OpenAICompatModel(provider="openai", id=model, base_url=url))
    made.set_tools([make_tool(getattr(jobs, name), name, text, schema) for name, text, schema in jobs.SCHEMAS])
    return made


async def run(agent, prompt, on_text):
    last = None
    async for event in agent.stream(prompt):
        if event.type == "message_update":
            if event.assistant_message_event.type == "text_delta":
                on_text(event.assistant_message_event.delta)
        elif event.type == "message_end" and event.message.role == "assistant":
            last = event.message
    return "".join(block.text for block in last.content if block.type == "text")
