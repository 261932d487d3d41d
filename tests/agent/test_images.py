"""Images and content blocks in a prompt."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, ImageContent, TextContent, UserMessage, agent_loop
from steersman.context import AgentContext
from steersman.loop.config import AgentLoopConfig
from steersman.testing import ScriptedModel

BYTES = {
    "image/png": b"\x89PNG\r\n\x1a\n" + b"0" * 20,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"0" * 20,
    "image/gif": b"GIF89a" + b"0" * 20,
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP" + b"0" * 20,
}


def content_of(script: ScriptedModel) -> list[Any]:
    return [*script.requests[-1][0].messages[-1].content]


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("form", ["bytes", "path", "string"])
async def test_images_are_paths_or_bytes_of_any_known_type(kind: str, form: str, tmp_path: Path) -> None:
    """api.md: `images` are paths, bytes or `ImageContent`; the type is detected from the bytes."""
    path = tmp_path / "picture.txt"
    path.write_bytes(BYTES[kind])
    image = {"bytes": BYTES[kind], "path": path, "string": str(path)}[form]
    script = ScriptedModel("A cat.")
    await Agent(script.model).run("What is this?", images=[image])
    assert content_of(script) == [TextContent("What is this?"), ImageContent(encoded(BYTES[kind]), kind)]


async def test_images_come_with_every_kind_of_prompt() -> None:
    """api.md: `agent.prompt(x, images=())`, and the same for `run`."""
    image = ImageContent("AAAA", "image/png")
    prompts: list[Any] = [
        "Look.",
        UserMessage([TextContent("Look.")]),
        {"role": "user", "content": "Look."},
        [TextContent("Look.")],
        ["First.", "Look."],
    ]
    for x in prompts:
        script = ScriptedModel("A cat.")
        await Agent(script.model).prompt(x, [image])
        assert content_of(script) == [TextContent("Look."), image]


@pytest.mark.parametrize("x", ["", " ", {"role": "user", "content": ""}, [{"type": "text", "text": " "}]], ids=repr)
async def test_images_need_no_text_beside_them(x: Any) -> None:
    """api.md: nothing but an image is a prompt, and no empty block is sent, which no server accepts."""
    script = ScriptedModel("A plan.")
    assert (await Agent(script.model).run(x, images=[ImageContent("AAAA", "image/png")])).end_reason == "done"
    assert content_of(script) == [ImageContent("AAAA", "image/png")]
    with pytest.raises(ValueError, match="needs some text"):
        await Agent(script.model).run(x)


def test_run_sync_takes_images_too() -> None:
    """api.md"""
    script = ScriptedModel("A cat.")
    assert Agent(script.model).run_sync("Look.", images=[BYTES["image/gif"]]).text == "A cat."
    assert content_of(script)[1].mime_type == "image/gif"


@pytest.mark.parametrize(
    ("images", "kind", "words"),
    [
        ([b"%PDF-1.7"], ValueError, "Not an image: 8 bytes. Images are PNG, JPEG, GIF or WebP"),
        ([3], TypeError, "An image is a path, bytes or an ImageContent, got 3"),
        (b"\x89PNG\r\n\x1a\n", TypeError, "Images come as a list"),
        ("plan.png", TypeError, "Images come as a list"),
        (["/nowhere/plan.png"], FileNotFoundError, "plan.png"),
    ],
)
def test_what_is_no_image_is_refused_before_anything_happens(images: Any, kind: type[Exception], words: str) -> None:
    """api.md: a clear error otherwise."""
    agent = Agent(ScriptedModel("x").model)
    with pytest.raises(kind, match=words):
        agent.prompt("Look.", images=images)
    assert (agent.is_running, list(agent.messages)) == (False, [])


def test_images_belong_to_the_user() -> None:
    """Nothing a caller gave is dropped silently."""
    agent = Agent(ScriptedModel("x").model)
    with pytest.raises(ValueError, match="'assistant'"):
        agent.prompt({"role": "assistant", "content": "Hm."}, images=[BYTES["image/png"]])


BLOCKS: list[Any] = [
    [TextContent("Look."), ImageContent("AAAA")],
    [{"type": "text", "text": "Look."}, {"type": "image", "data": "AAAA"}],
    ["Look.", ImageContent("AAAA")],
    [[TextContent("Look."), ImageContent("AAAA")]],
]


@pytest.mark.parametrize("x", BLOCKS)
async def test_a_list_of_content_blocks_is_one_message(x: Any) -> None:
    """api.md: `x` is also a list of content blocks, or a list of these."""
    script = ScriptedModel("A cat.", "A dog.")
    agent = Agent(script.model)
    await agent.run(x)
    assert content_of(script) == [TextContent("Look."), ImageContent("AAAA")]
    assert len(agent.messages) == 2
    await agent_loop(x, AgentContext(), AgentLoopConfig(model=script.model))
    assert content_of(script) == [TextContent("Look."), ImageContent("AAAA")]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_a_queued_message_may_be_a_list_of_content_blocks(queue: str) -> None:
    """api.md: `steer(x)` and `follow_up(x)` take what `prompt(x)` takes, one message at a time."""
    script = ScriptedModel("one", "two", "three", "four")
    agent = Agent(script.model, steering_mode="all", follow_up_mode="all")
    image = ImageContent("AAAA", "image/png")
    inputs: list[Any] = [
        [TextContent("What is"), image],
        [{"type": "text", "text": "What is"}, image],
        ["What is", image],
        ["What is"],
        {"role": "user", "content": "What is"},
    ]
    receipts = [getattr(agent, queue)(x) for x in inputs]
    await agent.run("Go.")
    assert [receipt.status for receipt in receipts] == ["delivered"] * 5
    assert [receipt.message.content for receipt in receipts] == [[TextContent("What is"), image]] * 3 + [
        [TextContent("What is")]
    ] * 2
    for wrong, count in ((["one", "two"], 2), ([], 0)):
        with pytest.raises(ValueError, match=f"One message is queued at a time, got a list of {count}"):
            getattr(agent, queue)(wrong)
    with pytest.raises(ValueError, match="needs some text or an image"):
        getattr(agent, queue)([TextContent(" ")])
    assert agent.queued == type(agent.queued)([], [])


def test_blocks_and_messages_do_not_mix() -> None:
    """Bad input gets a clear error."""
    mixed: Any = [TextContent("Look."), UserMessage([TextContent("Hm.")])]
    with pytest.raises(TypeError, match="this is no block"):
        Agent(ScriptedModel("x").model).prompt(mixed)


def test_an_empty_list_is_still_no_prompt() -> None:
    """Bad input gets a clear error."""
    empties: list[Any] = [[], [[]]]
    for empty in empties:
        with pytest.raises(ValueError, match=r"at least one prompt|needs some text"):
            Agent(ScriptedModel("x").model).prompt(empty)
