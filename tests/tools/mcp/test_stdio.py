"""A server in a process of its own: what it does to its pipes, how it ends, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from tests.tools.builtin.shells import until, zombies
from tests.tools.mcp.kit import (
    call,
    entered,
    is_at_once,
    lines,
    marked,
    names,
    new_mark,
    seen_by,
    small,
    text,
    tool_of,
    use,
)

from steersman import Agent, CancelToken, ToolContext, ToolError
from steersman.testing import ScriptedModel, answer
from steersman.testing import call as asks
from steersman.tools.mcp import McpError, McpServers, StdioServer
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time


async def test_a_call_goes_to_the_server_and_comes_back() -> None:
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:echo", text="good morning")
    assert (text(output), output.details, output.is_error) == ("good morning", {"mcp_server": "small"}, False)


async def test_a_server_that_dies_in_mid_call_fails_it_at_once_and_serves_the_next(tmp_path: Path) -> None:
    """failures.md F14: EOF fails the call, the call is not repeated, the next one finds a fresh server."""
    log, mark = tmp_path / "log", new_mark()
    async with entered(small=small(env={"LOG": str(log), "MARK": mark})) as servers:
        hanging = asyncio.create_task(call(servers, "mcp:small:hang"))
        await until(lambda: "hanging" in lines(log))
        began = time.monotonic()
        os.kill(marked(mark)[0], signal.SIGKILL)
        output = await hanging
        assert await is_at_once(time.monotonic() - began)
        assert output.is_error
        assert text(output) == (
            "The MCP server 'small' was lost during the call: it was ended by signal 9. Whether the call took effect "
            "is not known; it was not repeated. The next call starts or connects the server again."
        )
        again = await call(servers, "mcp:small:echo", text="again")
        assert (text(again), again.is_error) == ("again", False)
    assert lines(log).count("hanging") == 1
    assert len([line for line in lines(log) if line.startswith("started")]) == 2


async def test_a_run_goes_on_when_its_server_dies_and_ends_when_it_is_aborted(tmp_path: Path) -> None:
    """failures.md F3, F14: a lost server is an error result and no cancel; a cancel does not cost the server."""
    log, mark = tmp_path / "log", new_mark()
    script = ScriptedModel(answer(asks("mcp:small:hang")), "It is gone.", answer(asks("mcp:small:hang")))
    async with entered(small=small(env={"LOG": str(log), "MARK": mark})) as servers:
        agent = Agent(script.model, tools=[servers])
        running = asyncio.create_task(agent.run("Go."))
        await until(lambda: lines(log).count("hanging") == 1)
        os.kill(marked(mark)[0], signal.SIGKILL)
        result = await running
        assert (result.end_reason, result.text) == ("done", "It is gone.")
        (told,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
        assert (told.is_error, told.details["status"]) == (True, "completed")

        running = asyncio.create_task(agent.run("Again."))
        await until(lambda: lines(log).count("hanging") == 2)
        before = marked(mark)
        agent.abort()
        assert (await running).end_reason == "aborted"
        await until(lambda: any(line.startswith("notifications/cancelled") for line in lines(log)))
        assert text(await call(servers, "mcp:small:echo", text="still here")) == "still here"
        assert marked(mark) == before


@pytest.mark.parametrize("code", [-32000, -32001, -32602, 0])
async def test_an_error_of_a_server_is_its_answer_whatever_its_code(code: int) -> None:
    """-32000 and -32001 are what the SDK itself uses for a lost connection and a timeout; this is neither."""
    mark = new_mark()
    async with entered(small=small(env={"MARK": mark})) as servers:
        before = marked(mark)
        output = await call(servers, "mcp:small:refuse", code=code)
        assert output.is_error
        assert text(output) == f"The MCP server 'small' could not do it: it refused: not[2J today (code {code})."
        assert text(await call(servers, "mcp:small:echo", text="next")) == "next"
        assert marked(mark) == before


async def test_a_key_of_several_lines_is_hidden_with_other_ends_of_lines_and_line_by_line() -> None:
    """failures.md L13: what reads a key says which line it cannot read."""
    env = {"KEY": "-- begin --\nsecret/1+2\n  tokens\n-- end --\n"}
    quoted = ("-- begin --\r\nsecret/1+2\r\n  tokens", '{"line": "secret\\/1+2"}', "bad secret/1+2")
    async with entered(small=small(env=env)) as servers:
        for said in quoted:
            output = await call(
                servers, "mcp:small:blocks", blocks=[{"type": "text", "text": said}], rest={"isError": True}
            )
            assert "secret" not in text(output)
            assert "token" not in text(output)


async def test_a_result_that_is_an_error_has_no_value_of_the_environment(tmp_path: Path) -> None:
    """failures.md L13: a server passes on what another service says of the token it was given."""
    env = {"TRACKER_TOKEN": "t0k/en+1234567", "DATA": str(tmp_path)}
    said = f"401: t0k\\/en+1234567 is not valid for {tmp_path}/a"
    rest: dict[str, Any] = {"isError": True, "structuredContent": {"token": env["TRACKER_TOKEN"]}}
    async with entered(small=small(env=env)) as servers:
        blocks = [{"type": "text", "text": said}]
        output = await call(servers, "mcp:small:blocks", blocks=blocks, rest=rest)
        assert (output.is_error, text(output)) == (True, f"401: [redacted] is not valid for {tmp_path}/a")
        assert output.details == {"mcp_server": "small"}
        output = await call(servers, "mcp:small:blocks", blocks=[], rest=rest)
        assert text(output) == '{"token":"[redacted]"}'
        # An answer is what was asked for, be it a setting.
        assert text(await call(servers, "mcp:small:blocks", blocks=blocks)) == said


@pytest.mark.parametrize(
    "value",
    [
        '{"Authorization": "Bearer t0k/en+1234567", "Notion-Version": "2022-06-28"}',
        '{\n  "type": "service_account",\n  "private_key": "t0k/en+1234567"\n}',
        '[{"name": "main", "apiKeys": ["t0k/en+1234567"]}]',
        "Authorization: Bearer t0k/en+1234567",
        "postgres://user:t0k%2Fen+1234567@db.example/main",
        "https://t0k%2Fen+1234567@git.example/project",
        "https://api.example/v1?api_key=t0k/en%2B1234567",
    ],
)
async def test_a_key_in_a_value_of_the_environment_is_hidden_where_it_is_quoted_alone(value: str) -> None:
    """failures.md L13: a server takes a token out of headers or a URL that it was given, and quotes that."""
    said = '401 of "type" main at 2022-06-28: t0k/en+1234567 is not valid'
    async with entered(small=small(env={"GIVEN": value})) as servers:
        blocks = [{"type": "text", "text": said}]
        output = await call(servers, "mcp:small:blocks", blocks=blocks, rest={"isError": True})
    assert text(output) == '401 of "type" main at 2022-06-28: [redacted] is not valid'


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": ID, "error": {"code": 1, "message": "401: no t0k/en+1234567"}}',
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": "t0k/en+1234567"}}',
    ],
)
async def test_a_traceback_of_a_failed_call_has_no_value_of_the_environment(line: str) -> None:
    """failures.md L13: the SDK's exception quotes what the server sent."""
    async with entered(small=small(env={"TRACKER_TOKEN": "t0k/en+1234567"})) as servers:
        tool = tool_of(servers, "mcp:small:raw")
        with pytest.raises(ToolError) as raised:
            await tool.call(tool.check({"line": line}), ToolContext("call_1", tool.name, CancelToken()))
    assert "en+1234567" not in "".join(format_exception(raised.value))


async def test_its_last_words_are_told() -> None:
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:exit", status=4)
    assert "it exited with 4; its last stderr output: I have had enough." in text(output)


async def test_a_server_whose_child_holds_its_output_open_is_gone_all_the_same() -> None:
    """failures.md F7, F14: the end of the process counts, not the end of the pipe; the child goes with its group."""
    mark = new_mark()
    async with entered(small=small(env={"MARK": mark})) as servers:
        began = time.monotonic()
        output = await call(servers, "mcp:small:child")
        assert await is_at_once(time.monotonic() - began)
        assert "it exited with 0" in text(output)
        await until(lambda: not marked(mark), 3.0)


async def test_a_cancelled_call_is_cancelled_at_the_server_which_lives_on(tmp_path: Path) -> None:
    """failures.md F14: cancel sends notifications/cancelled and kills no process."""
    log, mark = tmp_path / "log", new_mark()
    async with entered(small=small(env={"LOG": str(log), "MARK": mark})) as servers:
        before = marked(mark)
        hanging = asyncio.create_task(call(servers, "mcp:small:hang"))
        await until(lambda: "hanging" in lines(log))
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await until(lambda: any(line.startswith("notifications/cancelled") for line in lines(log)))
        assert text(await call(servers, "mcp:small:echo", text="still here")) == "still here"
        assert marked(mark) == before
    cancelled = [
        json.loads(line.partition(" ")[2]) for line in lines(log) if line.startswith("notifications/cancelled")
    ]
    assert [set(params) for params in cancelled] == [{"requestId", "reason"}]


async def test_a_call_that_takes_too_long_is_told_to_stop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with entered(small=small(env={"LOG": str(log)}, timeout=0.3)) as servers:
        output = await call(servers, "mcp:small:hang")
        assert output.is_error
        assert text(output) == (
            "The MCP server 'small' could not do it: it did not answer within 0.3s, and the call was cancelled."
        )
        await until(lambda: any(line.startswith("notifications/cancelled") for line in lines(log)))
        assert len([line for line in lines(log) if line.startswith("started")]) == 1


async def test_progress_is_shown_while_the_call_goes_on() -> None:
    updates: list[object] = []
    async with entered(small=small()) as servers:
        hanging = asyncio.create_task(use(tool_of(servers, "mcp:small:hang"), updates.append))
        await until(lambda: updates)
        assert not hanging.done()
        hanging.cancel()
        await asyncio.wait([hanging])
    assert updates == [{"type": "progress", "text": "a[2Jquarter", "progress": 1.0, "total": 4.0}]


async def test_what_is_no_message_is_passed_over() -> None:
    """failures.md F15: log lines on the output."""
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:stray", lines=300)
        assert (text(output), output.is_error) == ("done", False)


BROKEN = {
    "half a character": r'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\ud800"}]}}',
    "no UTF-8": '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}',
    "a list": '{"jsonrpc":"2.0","id":ID,"result":[]}',
    "too deep": '{"jsonrpc": "2.0", "id": ID, "result": {"content": DEEP}}',
    "its id first": '{"id":ID,"jsonrpc":"2.0","result":[]}',
    "its id last": '{"result":[{"id": 1}],"jsonrpc":"2.0","id":ID}',
    "its id before the version": '{"result":["caf\xe9"],"id":ID,"jsonrpc":"2.0"}',
    "cut off": '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te',
    "an error that is none": '{"jsonrpc":"2.0","id":ID,"error":"no"}',
}


async def test_an_answer_that_cannot_be_read_fails_its_call_at_once() -> None:
    """failures.md F15"""
    async with entered(small=small(timeout=60)) as servers:
        for name, line in BROKEN.items():
            output = await asyncio.wait_for(call(servers, "mcp:small:raw", line=line), 10)
            assert output.is_error, name
            assert text(output).startswith("The MCP server 'small' could not do it: its answer is not valid MCP"), name
        assert text(await call(servers, "mcp:small:echo", text="next")) == "next"


NO_ANSWERS = (
    '{"jsonrpc":"2.0","id":ID,"method":"caf\xe9"}',
    '{"jsonrpc":"2.0","method":"caf\xe9","id":ID}',
    '{"id":ID,"level":"info","message":"caf\xe9"}',
    '{"jsonrpc":"2.0","method":"log","params":{"id":ID,"result":"caf\xe9"}}',
    '{"id":ID,"result":"caf\xe9"}',
)


async def test_a_broken_line_that_is_no_answer_is_taken_for_none() -> None:
    """A server numbers its own requests, and its logs, as it likes."""
    async with entered(small=small(timeout=0.3)) as servers, asyncio.TaskGroup() as group:
        calls = [group.create_task(call(servers, "mcp:small:raw", line=line)) for line in NO_ANSWERS]
    assert ["it did not answer within 0.3s" in text(task.result()) for task in calls] == [True] * len(NO_ANSWERS)


async def test_of_hurried_progress_the_first_and_the_last_is_shown_and_little_between() -> None:
    """failures.md F15: a loop of a server must not be a flood of ours."""
    updates: list[Any] = []
    start = asyncio.get_running_loop().time()
    async with entered(small=small()) as servers:
        output = await use(tool_of(servers, "mcp:small:hurry"), updates.append, steps=2_000)
        tenths = (asyncio.get_running_loop().time() - start) * 10
    assert text(output) == "done"
    assert (updates[0]["progress"], updates[-1]["progress"]) == (1, 2_000)
    assert len(updates) <= tenths + 2


async def test_of_a_flood_of_blocks_the_first_are_looked_at_and_the_rest_is_said_to_be_missing() -> None:
    """failures.md F15, L20"""
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:many", blocks=100_000)
    told = text(output).splitlines()
    assert told == [*map(str, range(1_000)), "[99,000 more blocks were sent; they are left out]"]


async def test_an_answer_of_millions_of_lists_is_not_parsed_and_fails_its_call_alone() -> None:
    """failures.md F15: in 8 MiB there is room for so many that making them holds up everything for many seconds."""
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:lists", count=1_000_000)
        assert output.is_error
        why = "more than 150,000 lists and objects, or 1,000,000 strings or other values"
        assert f"its answer is not valid MCP ({why})" in text(output)
        output = await call(servers, "mcp:small:lists", count=100_000)
    assert (len(text(output)), output.is_error) == (len('{"lists":[]}') + 3 * 100_000 - 1, False)


async def test_a_server_that_prints_nothing_but_other_things_is_given_up() -> None:
    """failures.md F15."""
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:stray", lines=5_000)
        assert "it writes other things than MCP messages to stdout" in text(output)
        assert text(await call(servers, "mcp:small:echo", text="next")) == "next"


async def test_a_result_of_a_megabyte_arrives_whole() -> None:
    """failures.md F15."""
    async with entered(small=small()) as servers:
        output = await call(servers, "mcp:small:big", size=1024 * 1024)
    assert (len(text(output)), output.is_error) == (1024 * 1024, False)


async def test_a_line_without_an_end_is_cut_off_within_bounds() -> None:
    """failures.md F15: 1 GB unterminated. The bound holds while it is read, so not all of it is ever written."""
    import tracemalloc

    async with entered(small=small()) as servers:
        tracemalloc.start()
        output = await call(servers, "mcp:small:endless", mib=1024)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert output.is_error
        assert "it sent a message of more than 8,388,608 bytes" in text(output)
        assert peak < 32 * 1024 * 1024
        assert text(await call(servers, "mcp:small:echo", text="next")) == "next"


async def test_no_key_of_ours_reaches_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L14: a child gets an allow-list and what its entry names, and nothing in its arguments."""
    canary, mark = new_mark(), new_mark()
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PYTHONPATH",
        "NODE_OPTIONS",
    ):
        monkeypatch.setenv(name, canary)
    async with entered(small=small(env={"NAMED": mark})) as servers:
        seen = json.loads(text(await call(servers, "mcp:small:env")))
        (pid,) = marked(mark)
        assert canary.encode() not in seen_by(pid)
    assert canary not in json.dumps(seen)
    assert seen["NAMED"] == mark


async def test_leaving_ends_every_process_and_reaps_it() -> None:
    mark = new_mark()
    async with entered(one=small(env={"MARK": mark}), two=small(env={"MARK": mark})):
        assert len(marked(mark)) == 2
    assert (marked(mark), zombies()) == ([], [])


async def test_a_server_that_will_not_go_is_made_to() -> None:
    mark = new_mark()
    async with entered(small=small("--stubborn", env={"MARK": mark})):
        began = time.monotonic()
    assert await is_at_once(time.monotonic() - began)
    assert (marked(mark), zombies()) == ([], [])


async def test_a_stopped_server_does_not_hold_up_the_cancel_nor_the_end(tmp_path: Path) -> None:
    """A process under SIGSTOP reads and writes nothing; only SIGKILL moves it."""
    log, mark = tmp_path / "log", new_mark()
    async with entered(small=small(env={"LOG": str(log), "MARK": mark})) as servers:
        hanging = asyncio.create_task(call(servers, "mcp:small:hang"))
        await until(lambda: "hanging" in lines(log))
        os.kill(marked(mark)[0], signal.SIGSTOP)
        hanging.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert await is_at_once(time.monotonic() - began)
        began = time.monotonic()
    assert await is_at_once(time.monotonic() - began)
    assert (marked(mark), zombies()) == ([], [])


def test_a_program_that_ends_without_leaving_leaves_no_process_either() -> None:
    """failures.md F6: what the event loop cancels at its end is closed all the same."""
    mark = new_mark()

    async def forget_to_leave() -> McpServers:
        return await entered(small=small(env={"MARK": mark})).__aenter__()

    servers = asyncio.run(forget_to_leave())
    assert names(servers)
    assert (marked(mark), zombies()) == ([], [])


async def test_leaving_in_haste_leaves_no_process_either() -> None:
    """A cancel in the midst of closing."""
    mark = new_mark()
    entering = asyncio.Event()

    async def use_them() -> None:
        async with entered(small=small("--stubborn", env={"MARK": mark})):
            entering.set()

    using = asyncio.create_task(use_them())
    await entering.wait()
    await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    await until(lambda: not marked(mark) and not zombies(), 2.5)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        pytest.param(
            StdioServer(command="no-such-program-here"),
            "The program 'no-such-program-here' cannot be started: No such file or directory.",
            id="missing",
        ),
        pytest.param(
            StdioServer(command="cat", cwd="/no/such/folder"),
            "The program 'cat' cannot be started in the folder '/no/such/folder': No such file or directory.",
            id="no folder",
        ),
        pytest.param(small("--silent", start_timeout=0.5), "it did not start within 0.5s", id="silent"),
        pytest.param(small("--deaf", start_timeout=0.5), "it did not start within 0.5s", id="deaf"),
        pytest.param(
            small("--exit", env={"TOKEN": "secret-token"}),
            "it exited with 3; its last stderr output: no licence for [redacted]",
            id="exits",
        ),
        pytest.param(
            small("--exit", env={"TOKEN": "".join(f"<{number}>" for number in range(200))}),
            "it exited with 3; its last stderr output: no licence for [redacted].",
            id="exits with the end of a long key",
        ),
        pytest.param(
            small("--exit", env={"TOKEN": "".join(f"<{number}>" for number in range(4_000))}),
            "it exited with 3.",
            id="exits with a key longer than what is kept",
        ),
        pytest.param(
            small("--exit", env={"TOKEN": "-- begin --\nsecret\n  token\n-- end --"}),
            "it exited with 3; its last stderr output: no licence for [redacted].",
            id="exits with a key of several lines",
        ),
        pytest.param(
            small("--closed", env={"TOKEN": "-- begin --\nsecret\n  token\n-- end --"}),
            "no licence for [redacted].",
            id="refuses a key of several lines",
        ),
        pytest.param(StdioServer(command="/bin/cat"), "Method not found", id="no MCP"),
    ],
)
async def test_a_server_that_cannot_be_started_is_an_error_that_says_why(server: StdioServer, reason: str) -> None:
    mark = new_mark()
    began = time.monotonic()
    with pytest.raises(McpError) as raised:
        async with entered(bad=server, good=small(env={"MARK": mark})):
            pass
    assert await is_at_once(time.monotonic() - began)
    shown = str(raised.value)
    assert shown.startswith("The MCP server 'bad' (")
    assert f"cannot be used: {reason}" in shown
    assert not shown.endswith("..")
    assert (marked(mark), zombies()) == ([], [])


async def test_a_server_that_is_not_required_is_a_problem_and_the_others_work() -> None:
    both = {"bad": small("--exit"), "good": small()}
    async with McpServers(both, required=False, on_problem=lambda _: None) as servers:
        assert text(await call(servers, "mcp:good:echo", text="hello")) == "hello"
        assert [name for name in names(servers) if name.startswith("mcp:bad:")] == []
        assert [str(problem) for problem in servers.problems] == [
            "MCP server 'bad': it cannot be used: it exited with 3; its last stderr output: no licence for anybody."
        ]


async def test_a_server_that_keeps_failing_is_given_a_rest(tmp_path: Path) -> None:
    """Restarts are bounded: at once, then after 0.5 s, 1 s, 2 s, 4 s, and then the model is told instead."""
    log = tmp_path / "log"
    program = tmp_path / "server.py"
    source = (Path(__file__).parent / "small_server.py").read_text(encoding="utf-8")
    program.write_text(source, encoding="utf-8")
    loop = asyncio.get_running_loop()
    import sys

    spec = StdioServer(command=sys.executable, args=["-E", "-S", str(program)], env={"LOG": str(log)})
    async with entered(small=spec) as servers:
        echo = tool_of(servers, "mcp:small:echo")
        program.write_text("raise SystemExit(9)", encoding="utf-8")
        assert "it exited with 4" in text(await call(servers, "mcp:small:exit", status=4))
        # Each pause counts from the failure, which is a little before the call is told of it.
        began = loop.time()
        for _ in range(3):
            assert "it exited with 9" in text(await use(echo))
        assert loop.time() - began >= 1.5
        program.write_text(source, encoding="utf-8")
        # Someone who knows better need not wait.
        await servers.refresh()
        assert text(await use(echo, text="well again")) == "well again"
