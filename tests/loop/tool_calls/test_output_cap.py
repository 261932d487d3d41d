from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from tests.loop.toolbox import agent_of, always, told

from steersman import ContextConfig, ImageContent, TextContent, ToolOutput, ToolResultMessage, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import ToolExecutionEnd


def results(messages: Any) -> list[ToolResultMessage]:
    return [message for message in messages if isinstance(message, ToolResultMessage)]


def full(message: ToolResultMessage, *, remove: bool = False) -> tuple[Path, str, int]:
    """The file with the whole output: its path, its text, its mode."""
    path = Path(message.details["full_output"])
    found = path, path.read_text(), stat.S_IMODE(path.stat().st_mode)
    if remove:
        path.unlink()
    return found


async def capped(value: Any, tmp_path: Path, **limits: int) -> ToolResultMessage:
    """The result of a tool that gives this value, under these limits."""

    @tool
    async def dump() -> Any:
        """Give a lot."""
        return value

    script = ScriptedModel(answer(call("dump")), "ok")
    config = ContextConfig(output_directory=str(tmp_path / "out"), **limits)  # pyright: ignore[reportArgumentType]
    agent, heard = agent_of(script, [dump], context_config=config)
    result = await agent.run("go")
    (message,) = results(result.messages)
    assert heard.of(ToolExecutionEnd)[0].result == message
    assert script.requests[1][0].messages[-1] == message
    return message


async def test_an_output_over_the_bytes_keeps_head_and_tail_and_names_the_file_with_all_of_it(tmp_path: Path) -> None:
    """loop.md C6"""
    text = "\n".join(f"line {number}" for number in range(5_000))
    message = await capped(text, tmp_path, max_tool_output_bytes=2_000)
    path, saved, mode = full(message)
    assert len(message.text.encode()) <= 2_000
    assert message.text.startswith("line 0\nline 1\n")
    assert message.text.endswith("line 4998\nline 4999")
    assert f"full output: {path}" in message.text
    assert (saved, path.parent) == (text, tmp_path / "out")
    assert (mode, message.details["status"]) == (0o600, "completed")


async def test_an_output_over_the_lines_is_cut_by_lines(tmp_path: Path) -> None:
    """loop.md C6"""
    message = await capped("\n".join("abcdefghij"), tmp_path, max_tool_output_lines=5)
    lines = message.text.splitlines()
    assert (lines[:2], lines[-2:], len(lines)) == (["a", "b"], ["i", "j"], 5)
    assert lines[2].startswith("[... ")


async def test_one_long_line_of_many_bytes_a_character_is_cut_safely(tmp_path: Path) -> None:
    """loop.md C6, failures.md K1"""
    text = "ä€🙂" * 3_000
    message = await capped(text, tmp_path, max_tool_output_bytes=1_000)
    assert len(message.text.encode()) <= 1_000
    assert "\ufffd" not in message.text
    assert (message.text[0], message.text[-1]) == ("ä", "🙂")
    assert full(message)[1] == text


async def test_an_output_within_the_limits_is_not_touched_and_no_file_is_written(tmp_path: Path) -> None:
    """loop.md C6"""
    message = await capped("x" * 1_000, tmp_path, max_tool_output_bytes=1_000)
    assert (message.text, message.details) == ("x" * 1_000, {"status": "completed"})
    assert not (tmp_path / "out").exists()


async def test_a_cap_holds_without_any_configuration() -> None:
    """loop.md C6"""

    @tool
    async def dump() -> str:
        """Give a lot."""
        return "x" * 200_000

    agent, _ = agent_of(ScriptedModel(answer(call("dump")), "ok"), [dump])
    result = await agent.run("go")
    (message,) = results(result.messages)
    _, saved, _ = full(message, remove=True)
    assert (len(message.text.encode()) <= 50_000, saved) == (True, "x" * 200_000)


async def test_images_stay_and_only_text_counts(tmp_path: Path) -> None:
    """loop.md C6"""
    image = ImageContent("aGk=")
    output = ToolOutput([TextContent("x" * 5_000), image], details={"mine": 1}, is_error=True)
    message = await capped(output, tmp_path, max_tool_output_bytes=1_000)
    assert [block.type for block in message.content] == ["text", "image"]
    assert (message.content[1], message.is_error, message.details["mine"]) == (image, True, 1)
    assert len(message.text) <= 1_000


async def test_the_text_of_an_exception_is_capped_too(tmp_path: Path) -> None:
    """loop.md C6, D4"""

    @tool
    async def broken() -> str:
        """Raise at length."""
        raise ValueError("x" * 100_000)

    config = ContextConfig(output_directory=str(tmp_path), max_tool_output_bytes=1_000)
    agent, _ = agent_of(ScriptedModel(answer(call("broken")), "ok"), [broken], context_config=config)
    result = await agent.run("go")
    ((name, text, is_error, status),) = told(result.messages)
    assert (name, is_error, status, len(text) <= 1_000) == ("broken", True, "completed", True)
    assert text.startswith("ValueError: xxx")


async def test_what_a_hook_puts_in_place_is_capped_too(tmp_path: Path) -> None:
    """loop.md C6, failures.md J6"""

    @tool
    async def small() -> str:
        """Give little."""
        return "small"

    config = ContextConfig(output_directory=str(tmp_path), max_tool_output_bytes=1_000)
    agent, _ = agent_of(
        ScriptedModel(answer(call("small")), "ok"),
        [small],
        context_config=config,
        after_tool_execution=always("y" * 100_000),
    )
    result = await agent.run("go")
    ((_, text, _, _),) = told(result.messages)
    assert (len(text) <= 1_000, text[:3]) == (True, "yyy")


async def test_a_file_that_cannot_be_written_does_not_cost_the_result(tmp_path: Path) -> None:
    """loop.md C6"""
    (tmp_path / "out").write_text("in the way")
    message = await capped("x" * 5_000, tmp_path, max_tool_output_bytes=1_000)
    assert ("the full output could not be saved: " in message.text, message.is_error) == (True, False)
    assert "full_output" not in message.details
