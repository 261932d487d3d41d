"""The preview of a call that needs approval: what it would do, and no question about what fails anyway."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from steersman import Agent, Approval, ToolCall, ToolError, tool
from steersman.policy.preview import preview_call, write_json
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin import builtin_tools
from steersman.types.events import ApprovalRequested, ToolExecutionEnd

EDIT = [{"old": "two", "new": "2"}]
WRONG = [{"old": "nowhere", "new": "x"}]


def _agree(_: ToolCall) -> bool:
    return True


async def run(folder: Path, *answers: object, policy: Approval | None = None) -> tuple[list[str], list[str], list[str]]:
    """What was asked about, the previews, and what came of the calls."""
    asked: list[str] = []
    previews: list[str] = []

    def approve(call: ToolCall) -> bool:
        asked.append(call.name)
        return True

    script = ScriptedModel(*answers, "Done.")  # pyright: ignore[reportArgumentType]
    agent = Agent(script.model, tools=builtin_tools(folder), approval=policy or Approval(), approve=approve)
    async for event in (stream := agent.prompt("Go.")):
        if isinstance(event, ApprovalRequested):
            previews.append(event.preview)
    result = await stream
    return asked, previews, [f"{message.details['status']}: {message.text}" for message in result.tool_results]


async def test_the_preview_of_an_edit_is_its_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    asked, previews, _ = await run(tmp_path, answer(call("edit", path="a.txt", edits=EDIT)))
    assert asked == ["edit"]
    assert previews == ["a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"]
    assert (tmp_path / "a.txt").read_text() == "one\n2\nthree\n"


async def test_a_call_that_fails_whatever_the_answer_is_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("two\n")
    asked, previews, results = await run(
        tmp_path,
        answer(call("edit", path="a.txt", edits=WRONG)),
        answer(call("write", path="../x", content="")),
    )
    assert (asked, previews) == ([], [])
    assert results[0].startswith("completed: 'a.txt' was not edited.\nedits[0]: the text was not found.")
    assert "outside the workspace" in results[1]


async def test_what_an_earlier_call_of_the_answer_may_still_change_is_asked_about(tmp_path: Path) -> None:
    """The file is not there when the second call is judged, and is when it runs."""
    both = answer(call("write", path="a.txt", content="two\n"), call("edit", path="a.txt", edits=EDIT))
    asked, previews, _ = await run(tmp_path, both)
    assert sorted(asked) == ["edit", "write"]
    assert len(previews) == 2
    assert (tmp_path / "a.txt").read_text() == "2\n"


async def test_what_a_call_beside_it_is_about_to_change_is_asked_about(tmp_path: Path) -> None:
    """The preview fails now; whether the call will is not known."""
    asked, made = asyncio.Event(), asyncio.Event()

    @tool
    async def make() -> str:
        """Make the file."""
        await asked.wait()
        (tmp_path / "a.txt").write_text("two\n")
        made.set()
        return "made"

    async def approve(_: ToolCall) -> bool:
        asked.set()
        await made.wait()
        return True

    script = ScriptedModel(answer(call("make"), call("edit", path="a.txt", edits=EDIT)), "Done.")
    tools = [make, *builtin_tools(tmp_path)]
    agent = Agent(script.model, tools=tools, approval=Approval(allow=["make"]), approve=approve)
    await asyncio.wait_for(agent.run("Go."), 20)
    assert (tmp_path / "a.txt").read_text() == "2\n"


async def test_an_effect_that_a_call_beside_it_changed_after_it_was_shown_does_not_happen(tmp_path: Path) -> None:
    """The other call is not over, so that the question came while it could still change the file."""
    file = tmp_path / "a.txt"
    file.write_text("two\n")
    asked, changed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def change() -> str:
        """Change the file, and go on."""
        await asked.wait()
        file.write_text("run('evil') if two else 0\n")
        changed.set()
        await ended.wait()
        return "changed"

    async def approve(_: ToolCall) -> bool:
        asked.set()
        await changed.wait()
        return True

    script = ScriptedModel(answer(call("change"), call("edit", path="a.txt", edits=EDIT)), "Done.")
    tools = [change, *builtin_tools(tmp_path)]
    agent = Agent(script.model, tools=tools, approval=Approval(allow=["change"]), approve=approve)
    async for event in (stream := agent.prompt("Go.")):
        if isinstance(event, ToolExecutionEnd):
            ended.set()
    assert file.read_text() == "run('evil') if two else 0\n"
    texts = [message.text for message in (await stream).tool_results]
    assert texts[1].startswith("The call did not run: what it would change has changed")


async def test_an_effect_that_was_looked_for_too_early_is_looked_for_again() -> None:
    """An earlier call may end while the preview of a later one looks: what it did counts."""
    looking, made = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    looks: list[bool] = []

    @tool
    async def make() -> str:
        """Make the target."""
        await looking.wait()
        return "made"

    def preview(_arguments: dict[str, object], _context: object) -> str:
        looks.append(made.is_set())
        if looks == [False]:
            loop.call_soon_threadsafe(looking.set)
            assert made.wait(20)
            raise ToolError("There is no moon.")
        return "to the moon"

    @tool(preview=preview)
    def deploy() -> str:
        """Deploy."""
        return "deployed"

    script = ScriptedModel(answer(call("make"), call("deploy")), "Done.")
    agent = Agent(script.model, tools=[make, deploy], approval=Approval(allow=["make"]), approve=_agree)
    previews: list[str] = []
    async for event in (stream := agent.prompt("Go.")):
        if isinstance(event, ToolExecutionEnd) and event.tool_name == "make":
            made.set()
        if isinstance(event, ApprovalRequested):
            previews.append(event.preview)
    assert [message.text for message in (await stream).tool_results] == ["made", "deployed"]
    assert (looks, previews) == ([False, True, True], ["to the moon"])


async def test_what_was_approved_is_what_runs(tmp_path: Path) -> None:
    """A file that changes while the question is open is not overwritten with another effect than the one shown."""
    file = tmp_path / "a.txt"
    file.write_text("mine\n")

    def approve(_: ToolCall) -> bool:
        file.write_text("changed meanwhile\n")
        return True

    script = ScriptedModel(answer(call("write", path="a.txt", content="new\n")), "Done.")
    agent = Agent(script.model, tools=builtin_tools(tmp_path), approval=Approval(), approve=approve)
    (result,) = (await agent.run("Go.")).tool_results
    assert (file.read_text(), result.is_error) == ("changed meanwhile\n", True)
    assert result.text.startswith("The call did not run: what it would change has changed")


async def test_a_tool_whose_preview_fails_is_not_run() -> None:
    """What was not asked about must not run, also if it would succeed by now."""
    ran: list[str] = []

    def preview(arguments: dict[str, object], _: object) -> str:
        raise ToolError(f"There is no {arguments['target']}.")

    @tool(preview=preview)
    def deploy(target: str) -> str:
        """Deploy."""
        ran.append(target)
        return "deployed"

    script = ScriptedModel(answer(call("deploy", target="moon")), "Done.")
    agent = Agent(script.model, tools=[deploy], approval=Approval(), approve=_agree)
    result = await agent.run("Go.")
    assert (ran, [message.text for message in result.tool_results]) == ([], ["There is no moon."])


async def test_no_content_that_needs_approval_to_be_read_is_told_before_the_answer(tmp_path: Path) -> None:
    """The text of a failure may quote the file: rules of `ask` and `deny` count, also through a link."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("password = 2 or 12345\n")
    (tmp_path / "link").symlink_to("secret/key")
    calls = answer(call("edit", path="link", edits=[{"old": "password = 1 or 12", "new": "x"}]))
    _, _, results = await run(tmp_path, calls)
    assert "12345" in results[0]  # where reading needs no approval, the hint helps
    asked, _, results = await run(tmp_path, calls, policy=Approval(ask=["read(secret/**)"], workspace=tmp_path))
    assert asked == ["edit"]
    asked, _, results = await run(tmp_path, calls, policy=Approval(deny=["read(secret/**)"], workspace=tmp_path))
    assert asked == []
    assert "denied by the rule 'read(secret/**)'" in results[0]
    assert "12345" not in results[0]


async def test_where_all_reading_needs_approval_or_there_is_no_reading_a_failure_is_asked_about(tmp_path: Path) -> None:
    """The text of a failure may quote the file, so it is told unasked only to a model that may read it unasked."""
    (tmp_path / "key").write_text("nowherever: 12345\n")
    calls = answer(call("edit", path="key", edits=WRONG))
    for policy in (Approval(ask=["read"]), Approval(ask=["*"]), Approval(deny=["read"])):
        asked, _, _ = await run(tmp_path, calls, policy=policy)
        assert asked == ["edit"]
    script = ScriptedModel(calls, "Done.")
    tools = [tool for tool in builtin_tools(tmp_path) if tool.name == "edit"]
    result = await Agent(script.model, tools=tools, approval=Approval()).run("Go.")
    assert result.tool_results[0].details["status"] == "denied"
    assert "12345" not in result.tool_results[0].text


def test_deeply_nested_arguments_are_not_shown_as_blanks() -> None:
    """With an item in each line, these 6,000 characters would be 1.6 million."""
    deep: object = [1] * 2_000
    for _ in range(400):
        deep = [deep]
    assert len(write_json({"deep": deep})) < 8_000
    assert preview_call("t", {"a": {"b": [1, {"c": []}]}}).split("\n") == [
        "{",
        '  "a": {',
        '    "b": [',
        "      1,",
        "      {",
        '        "c": []',
        "      }",
        "    ]",
        "  }",
        "}",
    ]


async def test_a_preview_that_breaks_is_none(tmp_path: Path) -> None:
    def preview(arguments: dict[str, object], _: object) -> str:
        raise RuntimeError("broken")

    @tool(preview=preview)
    def deploy(target: str) -> str:
        """Deploy."""
        return f"deployed {target}"

    previews: list[str] = []
    script = ScriptedModel(answer(call("deploy", target="live")), "Done.")
    agent = Agent(script.model, tools=[deploy], approval=Approval(), approve=_agree)
    async for event in agent.prompt("Go."):
        if isinstance(event, ApprovalRequested):
            previews.append(event.preview)
    assert previews == ['{\n  "target": "live"\n}']
