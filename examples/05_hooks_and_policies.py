"""Decide what may happen: refuse a call, change one, warn about a prompt, ask for more, keep a secret."""

from __future__ import annotations

from steersman import Agent, Inject, Pass, Rewrite, Skip, ToolCall, ToolOutput, Warn, tool
from steersman.policy import PolicyView
from steersman.testing import ScriptedModel, answer, call


@tool
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
def read(path: str, lines: int = 10) -> str:
    """Read a file."""
    return f"{lines} lines of {path}: token=sk-12345"


class Guard:
    """Any of the seams, sync or async; here the two around a tool call."""

    def before_tool_execution(self, call: ToolCall) -> Skip | Rewrite | None:
        if call.name == "delete":
            return Skip("Deleting is not allowed here.")
        return Rewrite({**call.arguments, "lines": 3}) if call.arguments.get("lines", 10) > 3 else None

    def after_tool_execution(self, call: ToolCall, output: ToolOutput) -> str:
        return str(output.content).replace("sk-12345", "<hidden>")


def careful(text: str) -> Pass | Warn:
    return Warn("the user is in a hurry") if "quick" in text else Pass()


def want_a_summary(view: PolicyView) -> Inject | None:
    done = view.message is not None and "Summary:" in view.message.text
    return None if done else Inject("End with a line that starts with 'Summary:'.")


script = ScriptedModel(
    answer("Cleaning up.", call("delete", path="a.txt"), call("read", path="b.txt", lines=500)),
    "I read b.txt and deleted nothing.",
    "Summary: b.txt holds a token.",
)
agent = Agent(
    script.model, tools=[delete, read], hooks=[Guard()], input_filters=[careful], post_loop_policies=[want_a_summary]
)
result = agent.run_sync("Be quick: clean up.")
for message in result.messages:
    print(f"{message.role:>11}: {message.text}")
print(f"        end: {result.end_reason}")
