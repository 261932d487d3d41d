"""What a server's tool gave, as the model gets it."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types
import pytest
from tests.tools.mcp.kit import call, entered, small, text
from tests.tools.mcp.small_server import PIXEL

from steersman import ImageContent, TextContent
from steersman.tools.mcp.content import to_output
from steersman.types.tools import ToolOutput


def given(*blocks: dict[str, Any], **rest: Any) -> ToolOutput:
    return to_output("s", mcp_types.CallToolResult.model_validate({"content": blocks, **rest}))


def test_texts_stand_together_and_pictures_between_them() -> None:
    output = given(
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
        {"type": "image", "data": PIXEL, "mimeType": "image/PNG"},
        {"type": "text", "text": "three", "annotations": {"priority": 1}},
    )
    assert output == ToolOutput(
        [TextContent("one\ntwo"), ImageContent(PIXEL, "image/png"), TextContent("three")], {"mcp_server": "s"}
    )


def test_what_a_model_cannot_be_shown_is_described() -> None:
    sound = base64.b64encode(b"x" * 300).decode()
    output = given(
        {"type": "audio", "data": sound, "mimeType": "audio/wav"},
        {"type": "image", "data": sound, "mimeType": "image/svg+xml"},
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "resource_link", "name": "a\x1b[2J", "uri": "file:///a", "description": "the first\nline"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "its text"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": sound, "mimeType": "application/zip"}},
    )
    assert text(output).splitlines() == [
        "[audio: audio/wav, about 300 bytes, not shown]",
        "[image: image/svg+xml, about 300 bytes, not shown]",
        "[image: image/png, which could not be decoded]",
        "[image: image/png, which could not be decoded]",
        "[resource: a[2J at file:///a, the first line]",
        "[resource: file:///b]",
        "its text",
        "[resource file:///c: application/zip, about 300 bytes, not shown]",
    ]


def picture(data: bytes, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind}


def test_a_picture_is_what_its_bytes_say_and_a_bad_one_is_described() -> None:
    """A provider that cannot read a picture refuses the whole conversation from then on."""
    pixel = base64.b64decode(PIXEL)
    wide = pixel[:16] + (9_000).to_bytes(4, "big") + pixel[20:]
    shown = given(picture(pixel, "image/jpeg"), picture(pixel, "text/plain"))
    assert shown.content == [ImageContent(PIXEL, "image/png")] * 2
    described = given(
        picture(b"\x89PNG no picture"),
        picture(pixel[:40]),
        picture(wide),
        picture(pixel + b"\0" * 3_600_000),
        picture(b"<svg/>", "image/svg+xml"),
    )
    assert text(described).splitlines() == [
        "[image: image/png, about 15 bytes, not shown]",
        "[image: image/png, not shown: it is malformed or truncated]",
        "[image: image/png, not shown: it has 9,000 x 1 pixels, and at most 8,000 each way can be shown]",
        f"[image: image/png, about {len(pixel) + 3_600_000 + 2:,} bytes, not shown]",
        "[image: image/svg+xml, about 6 bytes, not shown]",
    ]


def test_more_pictures_than_a_request_can_hold_are_described() -> None:
    output = given(*[{"type": "image", "data": PIXEL, "mimeType": "image/png"}] * 25)
    assert [type(block).__name__ for block in output.content] == [*["ImageContent"] * 20, "TextContent"]


def test_structured_content_is_in_the_details_and_stands_in_where_there_is_no_text() -> None:
    assert given(structuredContent={"a": [1]}) == ToolOutput(
        [TextContent('{"a":[1]}')], {"mcp_server": "s", "structured_content": {"a": [1]}}
    )
    both = given({"type": "text", "text": "a is 1"}, structuredContent={"a": 1})
    assert (text(both), both.details["structured_content"]) == ("a is 1", {"a": 1})
    huge = given({"type": "text", "text": "much"}, structuredContent={"a": "x" * 300_000})
    assert huge == ToolOutput([TextContent("much")], {"mcp_server": "s"})


def test_an_error_is_an_error_and_nothing_is_nothing() -> None:
    assert given({"type": "text", "text": "no"}, isError=True) == ToolOutput(
        [TextContent("no")], {"mcp_server": "s"}, is_error=True
    )
    assert given() == ToolOutput("", {"mcp_server": "s"})


@pytest.mark.real_time
async def test_a_result_that_is_none_fails_the_call_alone() -> None:
    async with entered(small=small()) as servers:
        for blocks, rest in (
            ([{"type": "hologram"}], {}),
            ("text", {}),
            ([{"type": "image"}], {}),
            ([], {"isError": "perhaps"}),
            ([], {"structuredContent": "no object"}),
        ):
            output = await call(servers, "mcp:small:blocks", blocks=blocks, rest=rest)
            assert output.is_error
            assert "its answer is not valid MCP" in text(output)
        assert text(await call(servers, "mcp:small:echo", text="next")) == "next"
