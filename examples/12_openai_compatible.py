"""Ask any server with OpenAI Chat Completions: OpenAI, OpenRouter, Ollama, vLLM, llama.cpp and many more.

python examples/12_openai_compatible.py                                              a strict fake server on loopback
python examples/12_openai_compatible.py ollama:qwen3                                 a server known by name
python examples/12_openai_compatible.py openai-chat:qwen3 http://127.0.0.1:8000/v1   any other, by its address
"""

from __future__ import annotations

import sys

from steersman import Agent, Model, Usage, get_model, tool
from steersman.testing import answer, call, text, thinking
from steersman.testing.servers import OpenAIChatServer
from steersman.types import ThinkingContent


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def ask(model: Model) -> None:
    agent = Agent(model, tools=[add], system_prompt="Use the tool, then answer in a sentence.")
    result = agent.run_sync("What is 20 + 22?")
    for message in result.messages:
        for block in message.content:
            if isinstance(block, ThinkingContent):
                print(f"   thinking: {block.thinking}")
        if message.text:
            print(f"{message.role:>11}: {message.text}")
    print(f"        end: {result.end_reason}, {result.usage.total} tokens {result.detail}".rstrip())


def main() -> None:
    if len(sys.argv) > 1:
        ask(get_model(sys.argv[1], base_url=sys.argv[2] if len(sys.argv) > 2 else None))
        return
    turn = answer(thinking("The tool can do this."), call("add", a=20, b=22))
    with OpenAIChatServer(turn, answer(text("20 + 22 is 42.")), usage=Usage(input=50, output=10)) as server:
        ask(server.model())
        field = server.requests[1]["messages"][2]["reasoning_content"]
        print(f"  sent back: {field} (in the field it came in, as DeepSeek and others demand)")


if __name__ == "__main__":
    main()
