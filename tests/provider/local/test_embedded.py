"""The embedded model itself: few tests, since each takes seconds. All of them share one child process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import cast

import aiohttp
import msgspec
import pytest
from tests.provider.local.weights.test_own_file import tiny_gguf

from steersman import Agent, get_model
from steersman.policy.approval import Approval
from steersman.provider.local import prepare, stream_local
from steersman.provider.local.prompting.decide import list_wanted_parameters
from steersman.provider.local.serving import slots
from steersman.provider.local.serving.child import ChildOptions
from steersman.provider.local.serving.server import Child, Server, Settings, get_or_start_server
from steersman.provider.local.serving.start import start_server
from steersman.provider.local.weights.find import Weights
from steersman.tools.builtin import builtin_tools
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, user_message
from steersman.types.model import Model, Request, StreamOptions, ToolSpec
from steersman.types.stream import Done, StreamEvent, TextDelta

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="what the kernel says about processes is asked in /proc"),
]


@pytest.fixture(scope="module")
def local(real_weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """The real model, served for as long as these tests run: a thread has an event loop that keeps it.

    Its prompts are kept where they usually are, so only the first run of all reads them; of several test processes one
    does, while the others wait.
    """
    model = get_model(f"local:{real_weights.path}")
    base = tmp_path_factory.getbasetemp()
    loop = asyncio.new_event_loop()
    keeper = threading.Thread(target=loop.run_forever)
    keeper.start()
    try:
        with (base.parent / "reading").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            made = asyncio.run_coroutine_threadsafe(prepare(model, tools=builtin_tools(base)), loop)
            made.result(240)
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        keeper.join()
        loop.close()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that other processes bring about."""
    async with asyncio.timeout(20):
        while not await true():  # noqa: ASYNC110  # another process brings it about, and sets no event of ours
            await asyncio.sleep(0.01)


def seen(pid: int | None, what: str) -> str:
    """What everybody on this machine, or this user, can see of a process."""
    return Path(f"/proc/{pid}/{what}").read_text()


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def events(model: Model, request: Request, options: StreamOptions | None = None) -> AsyncGenerator[StreamEvent]:
    made = stream_local()(model, request, options or StreamOptions())
    return cast(AsyncGenerator[StreamEvent], made)


async def told(model: Model, request: Request, then: Callable[[], object]) -> None:
    """Hear an answer; `then` is called at every word."""
    async with aclosing(events(model, request)) as heard:
        async for event in heard:
            if isinstance(event, TextDelta):
                then()


STORY = Request("", [user_message("Tell me a long story about a lighthouse, at least twenty sentences.")])


async def test_a_question_about_a_file_is_answered_by_reading_it(local: Model, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"host": "localhost", "port": 8099}\n')
    agent = Agent(local, tools=builtin_tools(tmp_path))
    deltas: list[str] = []
    agent.subscribe(lambda event: deltas.append(event.type))
    result = await agent.prompt("Which port is set in config.json?")
    answers = [message for message in result.messages if isinstance(message, AssistantMessage)]
    calls = [(call.name, dict(call.arguments)) for answer in answers for call in answer.tool_calls]
    assert calls == [("read", {"path": "config.json"})]
    assert "8099" in result.text
    assert (answers[0].stop_reason, answers[-1].stop_reason) == ("tool_use", "stop")
    assert deltas.count("message_update") > 5
    assert result.usage.output is not None
    assert result.usage.output > 10


async def test_what_is_not_in_the_project_is_not_made_up(local: Model, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def load():\n    return 1\n")
    result = await Agent(local, tools=builtin_tools(tmp_path)).prompt("Where is the function save_user defined?")
    assert result.text == "I did not find `save_user` here. I looked for `save_user` and for `save[_ -]?user`."
    counted = await Agent(local, tools=builtin_tools(tmp_path)).prompt("How many Python files are there?")
    assert counted.text == "There is 1 Python file: `a.py`."


async def test_small_talk_needs_no_tool(local: Model, tmp_path: Path) -> None:
    agent = Agent(local, tools=builtin_tools(tmp_path))
    result = await agent.prompt("Hello!")
    answers = [message for message in result.messages if isinstance(message, AssistantMessage)]
    assert [call.name for answer in answers for call in answer.tool_calls] == []
    assert result.text


async def test_an_answer_has_the_form_that_is_asked_for(local: Model) -> None:
    schema = {"type": "object", "properties": {"capital": {"type": "string"}}, "required": ["capital"]}
    request = Request("", [user_message("What is the capital of France?")])
    got = [event async for event in events(local, request, StreamOptions(output_schema=schema))]
    assert isinstance(got[-1], Done)
    assert json.loads(got[-1].message.text) == {"capital": "Paris"}


async def decision(model: Model, tools: Sequence[ToolSpec], *said: Message, required: bool = False) -> list[ToolCall]:
    options = StreamOptions(tool_choice="required" if required else "auto")
    got = [event async for event in events(model, Request("", list(said), list(tools)), options)]
    assert isinstance(got[-1], Done)
    return got[-1].message.tool_calls


async def test_a_decision_can_be_nothing_but_one_of_the_tools(local: Model, tmp_path: Path) -> None:
    """Nothing but the grammar makes it call a tool for this."""
    tools = builtin_tools(tmp_path)
    (call,) = await decision(local, tools, user_message("Hello!"), required=True)
    (called,) = [tool for tool in tools if tool.name == call.name]
    assert sorted(call.arguments) == sorted(list_wanted_parameters(called.parameters))


async def test_a_call_that_failed_is_not_made_again(local: Model, tmp_path: Path) -> None:
    said: list[Message] = [user_message("Which files mention TIMEOUT?")]
    first = await decision(local, builtin_tools(tmp_path), *said)
    assert [(call.name, call.arguments) for call in first] == [("search", {"pattern": "TIMEOUT"})]
    said.append(AssistantMessage([*first], stop_reason="tool_use"))
    said.append(ToolResultMessage([TextContent("The disk is busy.")], tool_call_id=first[0].id, is_error=True))
    second = await decision(local, builtin_tools(tmp_path), *said)
    assert [call.arguments for call in second if call.name == "search"] != [{"pattern": "TIMEOUT"}]


async def test_an_abandoned_answer_is_not_written_to_its_end(local: Model) -> None:
    server = await start_server(local, None)
    async with aclosing(events(local, STORY)) as story:
        async for event in story:
            if isinstance(event, TextDelta):
                break

    async def idle() -> bool:
        return not any(slot["is_processing"] for slot in (await server.get("/slots"))[1])

    await until(idle)


async def test_what_was_denied_is_not_made_up(local: Model, tmp_path: Path) -> None:
    agent = Agent(local, tools=builtin_tools(tmp_path), approval=Approval(deny=["bash"], workspace=tmp_path))
    result = await agent.prompt("Run the command git status.")
    assert result.text == "That did not work. Denied by the rule 'bash'."


async def test_other_clients_are_not_let_in(local: Model) -> None:
    server = await start_server(local, None)
    child = server.child
    assert server.url.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as client:
        for method, path in (("GET", "/props"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
            async with client.request(method, server.url + path, headers={"origin": "https://evil.example"}) as got:
                assert got.status == 401
                assert "access-control-allow-origin" not in got.headers
        async with client.get(server.url + "/") as page:
            assert page.status in (401, 404)
    for place in ("cmdline", "environ"):
        assert child.key not in seen(child.pid, place)
    assert child.key not in repr(child.settings)


async def test_ctrl_c_in_our_terminal_is_not_for_the_child(local: Model) -> None:
    pid = (await start_server(local, None)).child.pid
    assert pid is not None
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)


PROMPT = [{"role": "system", "content": "Say yes."}, {"role": "user", "content": "Yes?"}]


async def test_a_prompt_that_was_read_is_kept_and_a_damaged_one_is_read_again(
    real_weights: Weights, tmp_path: Path
) -> None:
    server = await get_or_start_server(small(real_weights, tmp_path))

    def kept() -> list[Path]:
        return sorted(tmp_path.glob(f"{slots.compute_key(server.settings, PROMPT)}-*.slot"))

    await slots.ensure_prefix(server, 0, PROMPT)
    (file,) = kept()
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    server.held.clear()
    await slots.ensure_prefix(server, 0, PROMPT)
    (file,) = kept()
    assert len(file.read_bytes()) == len(whole)
    written = file.stat().st_mtime_ns
    server.held.clear()
    await slots.ensure_prefix(server, 0, PROMPT)
    assert [found.name for found in kept()] == [file.name]
    assert file.stat().st_mtime_ns >= written
    assert sorted(os.listdir(tmp_path)) == [file.name]


async def test_a_child_that_dies_is_told_of_and_another_one_takes_its_place(local: Model) -> None:
    server = await start_server(local, None)
    pid = server.child.pid
    assert pid is not None
    with pytest.raises(ProviderError, match="killed by SIGKILL") as broken:
        await told(local, STORY, lambda: os.kill(pid, signal.SIGKILL))
    assert (broken.value.info.kind, broken.value.info.should_retry) == ("incomplete", True)
    request = Request("", [user_message("Hello!")])
    got = [event async for event in events(local, request)]
    assert isinstance(got[-1], Done)
    assert (await start_server(local, None)).child.pid != pid
    # The prompt of the answer came from its file: next to nothing had to be read again.
    used = got[-1].message.usage
    assert used.cache_read is not None
    assert used.cache_read > 5 * (used.input or 0)


def small(weights: Weights, folder: Path) -> Settings:
    return Settings(weights.path, context=256, threads=1, parallel=1, slots=folder)


def test_the_child_ends_with_the_event_loop(real_weights: Weights, tmp_path: Path) -> None:
    async def main() -> Server:
        return await get_or_start_server(small(real_weights, tmp_path))

    server = asyncio.run(main())
    assert server.child.ended.done()
    assert server.child.pid is not None
    assert not lives(server.child.pid)


PARENT = """
import asyncio, sys
from pathlib import Path
from steersman.provider.local.serving.server import Settings
from steersman.provider.local.serving.server import get_or_start_server

async def main():
    settings = Settings(Path(sys.argv[1]), context=256, threads=1, parallel=1, slots=Path(sys.argv[2]))
    server = await get_or_start_server(settings)
    print(server.child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_child_ends_with_a_parent_that_is_killed(real_weights: Weights, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(real_weights.path), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with contextlib.closing(parent.stdout):
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        parent.wait()

        async def gone() -> bool:
            return not lives(pid)

        asyncio.run(until(gone))


def test_the_child_ends_with_its_standard_input(real_weights: Weights, tmp_path: Path) -> None:
    """The kernel ends it with its parent on Linux alone; this does everywhere."""
    orders = ChildOptions(str(real_weights.path), "key", str(tmp_path), 256, 1, 1, 256, os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "steersman.provider.local.serving.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(orders) + b"\n")
        child.stdin.flush()
        assert child.stdout.readline().startswith(b'{"url":"http://127.0.0.1:')
        child.stdin.close()
        try:
            assert child.wait(20) == 0
        finally:
            child.kill()


async def test_a_model_that_cannot_be_run_is_told_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "strange.gguf"
    file.write_bytes(tiny_gguf(architecture="strange"))
    child = Child(Settings(file, context=256, threads=1, slots=tmp_path))
    with pytest.raises(ProviderError) as refused:
        await asyncio.wrap_future(child.ready)
    assert str(refused.value) == (
        "The process of the local model ended before it was ready: it exited with code 1 and the message "
        "\"unknown model architecture: 'strange'\". "
        f"Check the file {str(file)!r}: it may be damaged, or of a kind that cannot be run here."
    )
    assert refused.value.info.should_retry is False
    await asyncio.wrap_future(child.ended)


WHOLE = tiny_gguf(architecture="llama")
DAMAGED = {
    "truncated in its header": WHOLE[:200],
    "truncated at its end": WHOLE[:-100],
    "a fact of an unknown type": WHOLE[:44] + struct.pack("<Q", 77) + WHOLE[52:],
    "a text of an impossible length": WHOLE[:24] + struct.pack("<Q", 2**63) + WHOLE[32:],
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_damaged_file_ends_the_child_alone_and_is_named(tmp_path: Path, name: str) -> None:
    """Only the child reads the file: whatever is wrong with it, we get an error that says what to do."""
    file = tmp_path / "damaged.gguf"
    file.write_bytes(DAMAGED[name])
    child = Child(Settings(file, context=256, threads=1, slots=tmp_path))
    with pytest.raises(ProviderError) as refused:
        await asyncio.wrap_future(child.ready)
    assert "ended before it was ready" in str(refused.value)
    assert str(refused.value).endswith(
        f"Check the file {str(file)!r}: it may be damaged, or of a kind that cannot be run here."
    )
    await asyncio.wrap_future(child.ended)
